"""Tests of offsets and ranges: equal offsets are equal texts, and cuts cover a range once."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.topic_partition import TopicPartition
from tidelog.spark_connector.read.data_loss import DataLossError, lost
from tidelog.spark_connector.read.offset_ranges import (
    EPOCHS,
    IDS,
    Slice,
    StreamOffset,
    advance,
    backlog,
    describe,
    split,
    to_json,
)
from tidelog.wire.errors import ConfigError

ID = bytes(range(16))
partitions = st.builds(TopicPartition, st.sampled_from(["a", "b-2", "c.x"]), st.integers(0, 30))
offsets = st.dictionaries(partitions, st.integers(0, 1 << 40), min_size=1)
slices = st.lists(
    st.tuples(st.integers(0, 1 << 40), st.integers(0, 5000)), min_size=1, max_size=12
).map(
    lambda spans: [
        Slice("a", ID, number, start, start + size) for number, (start, size) in enumerate(spans)
    ]
)


@pytest.mark.statement("s24")
@given(offsets, st.randoms(use_true_random=False))
def test_equal_positions_are_equal_texts_in_any_order(
    found: dict[TopicPartition, int], order: random.Random
) -> None:
    names = sorted({at.topic for at in found})
    shuffled = list(found.items())
    order.shuffle(shuffled)

    one = StreamOffset(found, dict.fromkeys(names, ID))
    other = StreamOffset(dict(shuffled), dict.fromkeys(reversed(names), ID))

    assert json.dumps(one.to_json()) == json.dumps(other.to_json())
    assert StreamOffset.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_epochs_are_in_the_checkpoint_and_do_not_make_positions_differ() -> None:
    at = TopicPartition("a", 10)
    with_epoch = StreamOffset({at: 5}, {"a": ID}, {at: 3})
    without = StreamOffset({at: 5}, {"a": ID})

    assert with_epoch == without
    assert with_epoch.to_json()[EPOCHS] == {"a": {"10": 3}}
    assert EPOCHS not in without.to_json(), "that is the text of earlier versions"
    assert StreamOffset.from_json(with_epoch.to_json()).epochs == {at: 3}
    assert StreamOffset.from_json(without.to_json()).epochs == {}


def test_partitions_are_sorted_by_number() -> None:
    found = {TopicPartition("b", number): number for number in (10, 9, 100)}

    text = json.dumps(to_json({**found, TopicPartition("a", 0): 1}))

    assert text == '{"a": {"0": 1}, "b": {"9": 9, "10": 10, "100": 100}}'


@pytest.mark.parametrize(
    "found",
    [
        {"a": {"0": 1}},
        {"a": {"0": True}, IDS: {"a": ID.hex()}},
        {"a": {"0": -1}, IDS: {"a": ID.hex()}},
        {"a": {"x": 1}, IDS: {"a": ID.hex()}},
        {"a": [1], IDS: {"a": ID.hex()}},
        {"a": {"0": 1}, IDS: {"a": "zz"}},
        {"a": {"0": 1}, IDS: {"a": "00"}},
        {"a": {"0": 1}, IDS: {"b": ID.hex()}},
        {"a": {"0": 1}, IDS: 5},
        {"a": {"0": 1}, IDS: {"a": ID.hex()}, EPOCHS: {"a": {"0": "x"}}},
        {"a": {"0": 1}, IDS: {"a": ID.hex()}, EPOCHS: [1]},
    ],
)
def test_an_offset_that_another_source_wrote_is_refused(found: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="did not write"):
        StreamOffset.from_json(found)


@pytest.mark.statement("s8")
@given(slices, st.none() | st.integers(1, 3000), st.none() | st.integers(1, 40))
def test_the_parts_of_a_split_cover_the_range_once(
    whole: list[Slice], records_max: int | None, min_partitions: int | None
) -> None:
    parts = split(whole, records_max=records_max, min_partitions=min_partitions)

    assert all(part.size > 0 for part in parts)
    for each in whole:
        mine = [part for part in parts if part.partition == each.partition]
        edges = [each.start, *(part.end for part in mine)]
        assert [part.start for part in mine] == edges[:-1]
        assert edges[-1] == (each.end if each.size else each.start)
    if records_max is not None:
        assert all(part.size <= records_max for part in parts)


@given(slices, st.integers(1, 40))
def test_a_split_has_the_minimum_of_partitions_if_there_are_offsets(
    whole: list[Slice], min_partitions: int
) -> None:
    parts = split(whole, records_max=None, min_partitions=min_partitions)
    total = sum(each.size for each in whole)

    # A range below the mean is left whole, so tiny ranges may yield a few parts less.
    if total > 40 * 40:
        assert len(parts) >= min_partitions


def test_small_ranges_are_left_whole_and_large_ones_cut() -> None:
    whole = [Slice("a", ID, 0, 0, 10), Slice("a", ID, 1, 5, 1005)]

    parts = split(whole, records_max=None, min_partitions=5)

    assert [part.size for part in parts] == [10, 250, 250, 250, 250]
    assert describe(parts).startswith("a/0 [0, 10), a/1 [5, 255)")
    assert describe(parts * 2).endswith("and 5 more")


@pytest.mark.statement("s19", "s20")
@given(offsets, st.data(), st.integers(1, 1 << 20))
def test_a_limited_batch_advances_every_backlog_and_exceeds_its_limit_by_one_each_at_most(
    end: dict[TopicPartition, int], data: st.DataObject, limit: int
) -> None:
    start = {at: data.draw(st.integers(0, end[at]), label=str(at)) for at in end}
    total = backlog(start, end)

    reached = advance(start, end, numerator=limit, denominator=total)

    assert reached.keys() == end.keys()
    for at, offset in reached.items():
        assert start[at] <= offset <= end[at]
        assert offset > start[at] or start[at] == end[at]
    assert backlog(start, reached) <= limit + len(end)


def test_a_batch_below_its_limit_is_not_limited() -> None:
    start, end = {TopicPartition("a", 0): 3}, {TopicPartition("a", 0): 9, TopicPartition("a", 1): 4}

    assert backlog(start, end) == 10
    assert advance(start, end, numerator=10, denominator=10) == end
    assert advance(start, end, numerator=5, denominator=10) == {
        TopicPartition("a", 0): 6,
        TopicPartition("a", 1): 2,
    }


def test_the_error_of_data_loss_names_the_range_and_the_option() -> None:
    error = lost("orders/0 [3, 9)")

    assert isinstance(error, DataLossError)
    assert str(error).startswith("orders/0 [3, 9); set failOnDataLoss to false")
