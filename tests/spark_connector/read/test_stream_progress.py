"""Tests of stream progress: monotonic offsets, reported losses, and complete partitions."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.topic_partition import TopicPartition
from tidelog.spark_connector.lag import lag
from tidelog.spark_connector.read.offset_ranges import StreamOffset, split
from tidelog.spark_connector.read.partition_bounds import PartitionRange
from tidelog.spark_connector.read.stream_progress import (
    available_offsets,
    bytes_between,
    limited,
    size_between,
    slices_between,
    with_epochs,
    within,
)

OLD, NEW = b"o" * 16, b"n" * 16
A0, A1, A2, B0 = (
    TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("b", 0),
)  # fmt: skip


def position(offsets: dict[TopicPartition, int], **ids: bytes) -> StreamOffset:
    topics = {at.topic for at in offsets}
    return StreamOffset(offsets, {topic: ids.get(topic, OLD) for topic in sorted(topics)})


def bounds(start: int, end: int, topic_id: bytes = OLD, *, is_known: bool = True) -> PartitionRange:
    return PartitionRange(topic_id, start, end, 100 * (end - start), is_known)


def test_a_stream_reaches_the_end_of_every_partition() -> None:
    found = available_offsets(position({A0: 3, A1: 5}), {A0: bounds(0, 10), A1: bounds(5, 5)})

    assert found.end == position({A0: 10, A1: 5})
    assert (found.begin, found.losses) == ({A0: 3, A1: 5}, [])


@pytest.mark.statement("s17")
def test_a_new_partition_is_read_from_its_first_record() -> None:
    found = available_offsets(position({A0: 3}), {A0: bounds(0, 3), A1: bounds(0, 4)})

    assert found.end == position({A0: 3, A1: 4})
    assert found.losses == []
    assert [str(part) for part in slices_between(position({A0: 3}), found.end)] == ["a/1 [0, 4)"]


@pytest.mark.statement("s17")
def test_a_new_partition_that_has_lost_records_is_reported() -> None:
    found = available_offsets(position({A0: 3}), {A0: bounds(0, 3), A1: bounds(2, 4)})

    assert found.losses == ["a/1: offsets [0, 2) are gone: it was added, and begins at 2"]
    assert found.begin[A1] == 2


def test_records_deleted_by_retention_are_reported_as_a_range() -> None:
    found = available_offsets(position({A0: 3}), {A0: bounds(7, 9)})

    assert found.losses == ["a/0: offsets [3, 7) are gone: the log begins at 7"]
    assert (found.begin, found.end) == ({A0: 7}, position({A0: 9}))


def test_a_log_that_ends_before_the_stream_is_reported_and_the_stream_stays() -> None:
    found = available_offsets(position({A0: 8}), {A0: bounds(0, 5)})

    assert found.losses == ["a/0: the stream is at 8, and the log ends at 5"]
    assert found.end == position({A0: 8})


@pytest.mark.statement("s18")
def test_a_partition_without_an_answer_of_its_leader_keeps_its_offset() -> None:
    found = available_offsets(
        position({A0: 3, A1: 4}),
        {
            A0: bounds(0, 9),
            A1: bounds(0, 0, is_known=False),
            A2: bounds(0, 0, is_known=False),
        },
    )

    assert found.end == position({A0: 9, A1: 4})
    assert found.losses == []


@pytest.mark.statement("s18")
def test_an_empty_reply_moves_no_offset() -> None:
    found = available_offsets(position({A0: 3, B0: 4}), {})

    assert found.end == position({A0: 3, B0: 4})
    assert found.losses == ["topic a is gone", "topic b is gone"]


@pytest.mark.statement("s16")
@pytest.mark.parametrize("count", [2, 9])
def test_a_recreated_topic_is_another_one_with_more_or_fewer_records(count: int) -> None:
    start = position({A0: 5, A1: 2, B0: 1})

    found = available_offsets(start, {A0: bounds(0, count, NEW), B0: bounds(0, 1)})

    assert found.losses == ["topic a was deleted, and another one of that name was created"]
    assert found.end == position({A0: count, B0: 1}, a=NEW)
    assert [str(part) for part in slices_between(start, found.end)] == [f"a/0 [0, {count})"]


def test_missing_partitions_are_reported_and_kept() -> None:
    found = available_offsets(position({A0: 3, A1: 4}), {A0: bounds(0, 3)})

    assert found.losses == ["partitions [1] of topic a are gone"]
    assert found.end == position({A0: 3, A1: 4})


def test_available_now_excludes_partitions_that_are_created_later() -> None:
    start, target = position({A0: 1}), position({A0: 5})

    assert within(position({A0: 9, A1: 4}), target, start) == target
    assert within(position({A0: 3}), target, start) == position({A0: 3})
    assert within(position({A0: 9}), target, position({A0: 7})) == position({A0: 7})
    assert within(position({A0: 2}, a=NEW), target, start) == start
    assert within(position({A0: 2}, a=NEW), position({A0: 9}, a=NEW), start) == position(
        {A0: 2}, a=NEW
    )
    both = position({A0: 1, A1: 7})
    assert within(position({A0: 2}, a=NEW), position({A0: 9}, a=NEW), both) == position(
        {A0: 2}, a=NEW
    )


offsets = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 4)), st.integers(0, 1000)
)


@given(offsets.filter(bool), offsets.filter(bool), offsets.filter(bool))
def test_no_partition_of_the_start_is_ever_dropped_or_moved_back(
    start: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    target: dict[TopicPartition, int],
) -> None:
    begin = position(start)
    found = available_offsets(begin, {at: bounds(0, end) for at, end in sorted(ends.items())})

    reached = within(found.end, position(target), begin)

    for at, offset in start.items():
        assert found.end.offsets[at] >= offset
        assert reached.offsets[at] >= offset
    assert reached.topic_ids.keys() == {at.topic for at in reached.offsets}


places = st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 2))


@st.composite
def logs(draw: st.DrawFn) -> PartitionRange:
    start = draw(st.integers(0, 3))
    topic_id = draw(st.sampled_from([OLD, OLD, OLD, NEW]))
    is_known = draw(st.sampled_from([True, True, True, False]))
    return bounds(start, start + draw(st.integers(0, 6)), topic_id, is_known=is_known)


@given(st.dictionaries(places, st.integers(0, 9), min_size=1), st.data())
def test_an_additional_topic_does_not_affect_the_others(
    start: dict[TopicPartition, int], data: st.DataObject
) -> None:
    begin = position(start)
    seen = data.draw(
        st.fixed_dictionaries(dict.fromkeys(sorted(start), logs()))
        | st.dictionaries(places, logs())
    )
    another = TopicPartition("z", 0)

    found = available_offsets(begin, seen)
    more = available_offsets(begin, {**seen, another: bounds(0, 0)})

    assert more.losses == found.losses
    assert more.end.offsets == {**found.end.offsets, another: 0}
    assert more.end.topic_ids == {**found.end.topic_ids, "z": OLD}
    assert list(found.end.offsets) == sorted(found.end.offsets)
    for at, offset in found.end.offsets.items():
        assert more.begin.get(at, 0) == found.begin.get(at, 0) <= offset


def test_a_limited_batch_reads_a_share_of_every_partition() -> None:
    end = position({A0: 100, A1: 10})

    part = limited({A0: 0, A1: 0}, end, numerator=11, denominator=110)

    assert part == position({A0: 10, A1: 1})
    assert limited({A0: 0}, end, numerator=110, denominator=110) == end
    assert size_between({A0: 90}, end) == 20


def test_bytes_are_estimated_by_the_mean_record_size() -> None:
    ranges = {A0: bounds(10, 20), A1: bounds(0, 0)}

    assert bytes_between({A0: 15, A1: 0}, {A0: 20, A1: 0, A2: 5}, ranges) == 500


def test_a_range_that_ends_before_its_start_has_no_slice() -> None:
    assert slices_between(position({A0: 9}), position({A0: 5})) == []


IDS = {"@ids": {"orders": "00" * 16}, "@epochs": {"orders": {"0": 4}}}
PROGRESS: dict[str, list[dict[str, Any]]] = {
    "sources": [
        {
            "endOffset": {"orders": {"0": 5, "1": 9}, **IDS},
            "latestOffset": {"orders": {"0": 7, "1": 9, "2": 3}, **IDS},
        },
        {"endOffset": {"logOffset": 3}, "latestOffset": None},
    ]
}


def test_the_lag_is_the_number_of_unread_offsets() -> None:
    expected = {
        TopicPartition("orders", 0): 2,
        TopicPartition("orders", 1): 0,
        TopicPartition("orders", 2): 3,
    }

    assert lag(PROGRESS) == expected
    assert lag(json.dumps(PROGRESS)) == expected
    assert lag(SimpleNamespace(json=json.dumps(PROGRESS))) == expected


def test_the_lag_accepts_offsets_as_json_strings() -> None:
    (source, _) = PROGRESS["sources"]
    as_text = {"sources": [{name: json.dumps(value) for name, value in source.items()}]}

    assert sum(lag(as_text).values()) == 5


def ends_in(epoch: int | None, end: int, topic_id: bytes = OLD) -> PartitionRange:
    return PartitionRange(topic_id, 0, end, leader_epoch=epoch)


def epoch_at(
    offset: int, bounds: PartitionRange, *, start: int = 3, start_epoch: int | None = 4
) -> int | None:
    """Return the epoch of the end of a batch that begins at `start`."""
    epochs = {} if start_epoch is None else {A0: start_epoch}
    begin = StreamOffset({A0: start}, {"a": OLD}, epochs)
    return with_epochs(position({A0: offset}), begin, {A0: bounds}).epochs.get(A0)


def test_a_position_at_the_end_of_a_log_has_the_epoch_that_the_leader_reports() -> None:
    assert epoch_at(9, ends_in(6, 9)) == 6
    assert epoch_at(9, ends_in(6, 9), start_epoch=None) == 6
    assert epoch_at(9, ends_in(None, 9)) is None


def test_a_position_before_the_end_has_an_epoch_if_no_leader_changed_since_its_start() -> None:
    assert epoch_at(8, ends_in(4, 9)) == 4
    assert epoch_at(8, ends_in(6, 9)) is None


def test_a_position_that_does_not_move_keeps_its_epoch() -> None:
    assert epoch_at(3, ends_in(6, 3)) == 4
    assert epoch_at(3, ends_in(6, 3), start_epoch=None) is None


def test_a_position_has_no_epoch_of_another_topic_or_a_shorter_log() -> None:
    assert epoch_at(9, ends_in(4, 9, NEW)) is None
    assert epoch_at(9, ends_in(4, 8)) is None
    recreated = position({A0: 9}, a=NEW)
    begin = StreamOffset({A0: 9}, {"a": OLD}, {A0: 4})
    assert with_epochs(recreated, begin, {A0: ends_in(1, 9, NEW)}).epochs == {A0: 1}


def test_a_slice_has_the_epoch_of_the_record_below_its_start() -> None:
    start = StreamOffset({A0: 3}, {"a": OLD}, {A0: 4})

    (found,) = slices_between(start, position({A0: 9, A1: 0}))

    assert (found.start, found.leader_epoch) == (3, 4)
    assert [part.leader_epoch for part in split([found], records_max=3, min_partitions=None)] == [
        4,
        None,
    ]
    assert slices_between(start, position({A0: 9}, a=NEW))[0].leader_epoch is None
