"""A log detects duplicates of its producers' last batches, also after restart and repair."""

import re
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.logstore.log_model import ModelBatch, ModelLog, ModelProducer
from tests.logstore.logs import Producer, header_of
from tests.paths import ROOT
from tidelog.logstore.producer_state import (
    KEPT_AT_LEAST_MS,
    PRODUCERS_MAX,
    STAGED_WINDOW_BATCHES,
    WINDOW_BATCHES,
    ProducerState,
    ProducerStates,
)
from tidelog.wire.batch.record_batch import BatchHeader
from tidelog.wire.errors import (
    DuplicateSequenceError,
    FencedProducerError,
    OutOfOrderSequenceError,
    OverloadedError,
)
from tidelog.wire.messages.produce import BROKER_PRODUCER_IDS_FROM, STAGED_PRODUCER_ID

NOW_MS = 1_000_000


def sent(sequence: int, *, count: int = 1, epoch: int = 0, producer_id: int = 7) -> BatchHeader:
    """Return the header of a batch with these sequences."""
    return header_of([b"value"] * count, producer=Producer(producer_id, epoch, sequence))


def after(*sequences: int, epoch: int = 0) -> ProducerStates:
    """Return the state after appends of single records from offset 100 on."""
    states = ProducerStates()
    for offset, sequence in enumerate(sequences, start=100):
        states.appended(sent(sequence, epoch=epoch), offset, now_ms=NOW_MS)
    return states


def test_a_producer_that_is_not_known_begins_at_0() -> None:
    """Otherwise a batch that overtakes the first makes the first look like a duplicate. KIP-360."""
    states = ProducerStates()

    assert states.check(sent(0)) is None
    with pytest.raises(OutOfOrderSequenceError, match="is not known") as caught:
        states.check(sent(1))
    assert caught.value.expected_sequence == 0


def test_a_brokers_producer_may_start_at_any_sequence() -> None:
    """A broker asks for the last sequence before it sends, and has one batch in flight."""
    states = ProducerStates()

    assert states.check(sent(1234, producer_id=BROKER_PRODUCER_IDS_FROM)) is None


def test_an_appended_batch_is_found_by_its_producer_epoch_and_first_sequence() -> None:
    states = after(*range(3), epoch=1)

    found = states.find(sent(1, count=9, epoch=1))

    assert found is not None
    assert (found.base_sequence, found.base_offset) == (1, 101)
    assert states.find(sent(3, epoch=1)) is None
    assert states.find(sent(1, epoch=0)) is None
    assert states.find(sent(1, epoch=1, producer_id=8)) is None


def test_the_next_sequence_is_new() -> None:
    states = ProducerStates()
    states.appended(sent(0, count=10), 100, now_ms=NOW_MS)

    assert states.check(sent(10)) is None


def test_a_retry_of_any_batch_of_the_window_gets_its_original_offset() -> None:
    """I78a."""
    states = after(*range(10))

    assert [states.check(sent(sequence)) for sequence in range(5, 10)] == [105, 106, 107, 108, 109]
    assert WINDOW_BATCHES == 5


def test_a_retry_of_an_older_batch_is_an_error_and_never_a_silent_success() -> None:
    """I78a."""
    with pytest.raises(DuplicateSequenceError, match="appended before the last 5 batches"):
        after(*range(10)).check(sent(4))


def test_a_batch_that_only_begins_or_ends_like_an_appended_one_is_an_error() -> None:
    states = ProducerStates()
    states.appended(sent(0, count=10), 100, now_ms=NOW_MS)

    with pytest.raises(DuplicateSequenceError):
        states.check(sent(0, count=5))
    with pytest.raises(DuplicateSequenceError):
        states.check(sent(5, count=5))


def test_a_gap_is_an_error_that_says_what_was_expected() -> None:
    """I78b."""
    with pytest.raises(OutOfOrderSequenceError, match="the log expects 3") as caught:
        after(0, 1, 2).check(sent(4))

    assert caught.value.expected_sequence == 3


def test_only_staged_records_may_skip_sequences() -> None:
    """Their sequences encode commit and position; not every commit writes to each partition."""
    states = ProducerStates()
    for offset, sequence in enumerate((0, 1 << 32), start=100):
        assert states.check(sent(sequence, producer_id=STAGED_PRODUCER_ID)) is None
        states.appended(sent(sequence, producer_id=STAGED_PRODUCER_ID), offset, now_ms=NOW_MS)

    assert states.check(sent(7 << 32, producer_id=STAGED_PRODUCER_ID)) is None
    assert states.check(sent(1 << 32, producer_id=STAGED_PRODUCER_ID)) == 101
    for producer_id in (7, BROKER_PRODUCER_IDS_FROM):
        states.appended(sent(0, producer_id=producer_id), 102, now_ms=NOW_MS)
        with pytest.raises(OutOfOrderSequenceError, match="the log expects 1"):
            states.check(sent(2, producer_id=producer_id))


def test_skipped_sequences_are_not_accepted_later() -> None:
    """Otherwise a lagging leader would append a commit again, or two in the wrong order."""
    states = ProducerStates()
    for offset, sequence in enumerate((0, 5 << 32), start=100):
        states.appended(sent(sequence, producer_id=STAGED_PRODUCER_ID), offset, now_ms=NOW_MS)

    for sequence in (1, 3 << 32, (5 << 32) - 1):
        with pytest.raises(DuplicateSequenceError):
            states.check(sent(sequence, producer_id=STAGED_PRODUCER_ID))


def test_truncated_staged_records_are_appended_again() -> None:
    states = ProducerStates()
    for offset, sequence in enumerate((0, 5 << 32, 8 << 32), start=100):
        states.appended(sent(sequence, producer_id=STAGED_PRODUCER_ID), offset, now_ms=NOW_MS)
    states.truncate(101)

    assert states.check(sent(5 << 32, producer_id=STAGED_PRODUCER_ID)) is None
    assert states.check(sent(8 << 32, producer_id=STAGED_PRODUCER_ID)) is None
    with pytest.raises(DuplicateSequenceError):
        states.check(sent(0, count=2, producer_id=STAGED_PRODUCER_ID))


def test_a_log_knows_the_last_commit_after_a_cut_of_all_later_ones() -> None:
    """Otherwise the next leader would append that commit again."""
    states, count = ProducerStates(), STAGED_WINDOW_BATCHES + 3
    for number in range(count):
        states.appended(sent(number << 32, producer_id=STAGED_PRODUCER_ID), number, now_ms=NOW_MS)
    last = count - STAGED_WINDOW_BATCHES
    states.truncate(last + 1)

    assert states.position(STAGED_PRODUCER_ID) == (0, (last << 32) + 1)
    states.truncate(last)
    assert states.position(STAGED_PRODUCER_ID) == (0, None)


def test_a_new_epoch_begins_with_sequence_0() -> None:
    """I78b."""
    states = after(0, 1, 2, epoch=4)

    assert states.check(sent(0, epoch=5)) is None
    with pytest.raises(OutOfOrderSequenceError, match="instead of 0") as caught:
        states.check(sent(3, epoch=5))
    assert caught.value.expected_sequence == 0


def test_an_older_epoch_is_fenced() -> None:
    with pytest.raises(FencedProducerError, match="has epoch 4 now, the batch carries 3"):
        after(0, epoch=4).check(sent(1, epoch=3))


def test_a_new_producer_epoch_forgets_old_sequences() -> None:
    states = after(0, 1, 2, epoch=4)
    states.appended(sent(0, epoch=5), 200, now_ms=NOW_MS)

    assert states.check(sent(0, epoch=5)) == 200
    assert states.check(sent(1, epoch=5)) is None


def test_a_restart_keeps_a_producer_with_a_truncated_window() -> None:
    states = after(*range(10))
    states.truncate(0)

    copy = ProducerStates(states.snapshot())

    assert copy.check(sent(5)) is None
    with pytest.raises(OutOfOrderSequenceError, match="the log expects 5"):
        copy.check(sent(6))


def test_a_checkpoint_without_first_sequences_is_read() -> None:
    """Checkpoints of earlier versions."""
    packed = msgspec.msgpack.encode([[7, 4, NOW_MS, [[3, 4, 103]]], [8, 0, NOW_MS, []]])

    states = ProducerStates(msgspec.msgpack.decode(packed, type=list[ProducerState]))

    assert states.check(sent(3, epoch=4)) == 103
    assert states.check(sent(0, producer_id=8)) is None


def full(*, last_append_ms: int) -> ProducerStates:
    """Return the states of the maximum number of producers, with ids from 1 on."""
    batch = after(0).snapshot()[0].window
    times = [last_append_ms] + [last_append_ms + 1] * (PRODUCERS_MAX - 1)
    return ProducerStates(
        ProducerState(number, 0, time_ms, batch) for number, time_ms in enumerate(times, start=1)
    )


def test_a_producer_above_the_limit_is_refused() -> None:
    states = full(last_append_ms=NOW_MS - KEPT_AT_LEAST_MS + 1)

    with pytest.raises(OverloadedError, match="100000 producers wrote to this partition"):
        states.admit(sent(0, producer_id=PRODUCERS_MAX + 1), now_ms=NOW_MS)
    assert states.admit(sent(1, producer_id=3), now_ms=NOW_MS) is None
    assert states.admit(sent(0, producer_id=3), now_ms=NOW_MS) == 100
    assert states.admit(sent(0, producer_id=0), now_ms=NOW_MS) is None


def test_a_new_producer_replaces_the_longest_silent_one() -> None:
    states = full(last_append_ms=NOW_MS - KEPT_AT_LEAST_MS)
    new = sent(0, producer_id=PRODUCERS_MAX + 1)

    assert states.admit(new, now_ms=NOW_MS) is None
    states.appended(new, 200, now_ms=NOW_MS)

    assert len(states) == PRODUCERS_MAX
    assert states.position(1) is None
    assert states.position(2) is not None
    with pytest.raises(OverloadedError):
        states.admit(sent(0, producer_id=PRODUCERS_MAX + 2), now_ms=NOW_MS)


def test_a_broker_is_never_forgotten_for_a_producer() -> None:
    states = ProducerStates()
    states.appended(sent(0, producer_id=BROKER_PRODUCER_IDS_FROM), 0, now_ms=0)
    states = ProducerStates([*states.snapshot(), *full(last_append_ms=1).snapshot()[1:]])

    states.appended(sent(0, producer_id=PRODUCERS_MAX + 1), 200, now_ms=NOW_MS)

    assert states.position(BROKER_PRODUCER_IDS_FROM) is not None
    assert states.position(2) is None


def test_a_broker_is_known_however_many_producers_there_are() -> None:
    """A mover that resumes asks the log for the sequence of its last move."""
    states = full(last_append_ms=NOW_MS)
    moved = sent(1234, producer_id=BROKER_PRODUCER_IDS_FROM)
    learned_states = msgspec.structs.replace(moved, producer_id=BROKER_PRODUCER_IDS_FROM + 1)

    assert states.admit(moved, now_ms=NOW_MS) is None
    states.appended(moved, 200, now_ms=NOW_MS)
    states.learn([learned_states], now_ms=NOW_MS)

    for producer_id in (BROKER_PRODUCER_IDS_FROM, BROKER_PRODUCER_IDS_FROM + 1):
        assert states.position(producer_id) == (0, 1235)
    assert len(states) == PRODUCERS_MAX + 2
    assert states.position(1) is not None


@given(
    batches=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2)), min_size=1, max_size=30),
    epoch_begins=st.sets(st.integers(0, 29)),
    hole=st.tuples(st.integers(0, 29), st.integers(0, 29)),
    cut=st.none() | st.integers(0, 30),
    seed=st.integers(0, 1 << 16),
)
def test_learned_batches_lead_to_the_same_state_as_appended_ones(
    batches: list[tuple[int, int]],
    epoch_begins: set[int],
    hole: tuple[int, int],
    *,
    cut: int | None,
    seed: int,
) -> None:
    headers = headers_of_log(batches, epoch_begins)
    whole, learned_states = ProducerStates(), ProducerStates()
    missing = headers[hole[0] : hole[1]]
    for header in headers:
        whole.appended(header, header.base_offset, now_ms=NOW_MS)
        if header not in missing:
            learned_states.appended(header, header.base_offset, now_ms=NOW_MS)
    if cut is not None:
        end = 2 * max(cut, min(hole[1], len(headers)))  # Truncated damage loses nothing.
        whole.truncate(end)
        learned_states.truncate(end)

    learned = missing * 2
    Random(seed).shuffle(learned)
    learned_states.learn(learned, now_ms=NOW_MS)

    if cut is None:
        assert by_id(learned_states) == by_id(whole)
    else:
        assert known_of(learned_states) == known_of(whole)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_staged_records_are_learned_after_a_truncated_later_commit(
    order: tuple[int, int],
) -> None:
    """Otherwise the next leader would append it again: it asks the log for the last sequence."""
    missing = [sent(7 << 32, producer_id=STAGED_PRODUCER_ID, count=3)]
    missing.append(sent((7 << 32) + 3, producer_id=STAGED_PRODUCER_ID))
    missing = [
        msgspec.structs.replace(header, base_offset=offset)
        for header, offset in zip(missing, (100, 103), strict=True)
    ]
    states = ProducerStates()
    states.appended(sent(8 << 32, producer_id=STAGED_PRODUCER_ID), 104, now_ms=NOW_MS)
    states.truncate(104)

    states.learn([missing[place] for place in order], now_ms=NOW_MS)

    assert states.position(STAGED_PRODUCER_ID) == (0, (7 << 32) + 4)
    assert states.check(missing[0]) == 100
    assert states.check(sent(8 << 32, producer_id=STAGED_PRODUCER_ID)) is None


def headers_of_log(batches: list[tuple[int, int]], epoch_begins: set[int]) -> list[BatchHeader]:
    """Return batches of a log as of producers and record counts; some begin a new epoch."""
    headers = list[BatchHeader]()
    next_of: dict[int, tuple[int, int]] = {}
    for number, (producer_id, count) in enumerate(batches):
        epoch, sequence = next_of.get(producer_id, (0, 0))
        if number in epoch_begins:
            epoch, sequence = epoch + 1, 0
        header = sent(sequence, count=count, epoch=epoch, producer_id=producer_id)
        headers.append(msgspec.structs.replace(header, base_offset=2 * number))
        next_of[producer_id] = (epoch, sequence + count)
    return headers


def by_id(states: ProducerStates) -> dict[int, ProducerState]:
    return {state.producer_id: state for state in states.snapshot()}


def known_of(states: ProducerStates) -> dict[int, tuple[int, int]]:
    """Return the epoch and next sequence of each producer."""
    return {
        state.producer_id: (state.producer_epoch, state.expected_sequence)
        for state in states.snapshot()
    }


def test_producers_do_not_disturb_each_other() -> None:
    states = after(0, 1, 2)
    states.appended(sent(0, producer_id=8), 200, now_ms=NOW_MS)

    assert states.check(sent(2)) == 102
    assert states.check(sent(0, producer_id=8)) == 200
    assert len(states) == 2


def test_truncated_batches_can_be_retried() -> None:
    states = after(*range(5))

    states.truncate(103)

    assert states.check(sent(2)) == 102
    assert states.check(sent(3)) is None
    with pytest.raises(OutOfOrderSequenceError):
        states.check(sent(4))


def test_a_producer_with_a_truncated_window_restarts_at_its_first_sequence() -> None:
    states = after(*range(10), epoch=4)

    states.truncate(0)

    assert states.check(sent(5, epoch=4)) is None
    with pytest.raises(OutOfOrderSequenceError, match="the log expects 5"):
        states.check(sent(6, epoch=4))
    assert states.check(sent(0, epoch=5)) is None
    with pytest.raises(FencedProducerError):
        states.check(sent(0, epoch=3))


def test_producers_expire_by_append_time_not_by_record_timestamps() -> None:
    states = ProducerStates()
    ancient = header_of([b"from a file of 1999"], timestamp_ms=5, producer=Producer(1, 0, 0))
    states.appended(ancient, 0, now_ms=NOW_MS)
    states.appended(sent(0), 1, now_ms=NOW_MS - 10)

    states.expire(before_ms=NOW_MS - 10, is_kept=lambda _: False)
    assert len(states) == 2
    states.expire(before_ms=NOW_MS, is_kept=lambda _: False)
    assert len(states) == 1
    states.expire(before_ms=NOW_MS + 1, is_kept=lambda _: False)
    assert len(states) == 0


def test_a_snapshot_restores_the_producer_state() -> None:
    states = after(*range(10), epoch=4)
    states.appended(sent(0, producer_id=8), 200, now_ms=NOW_MS + 5)

    packed = msgspec.msgpack.encode(states.snapshot())
    copy = ProducerStates(msgspec.msgpack.decode(packed, type=list[ProducerState]))

    assert copy.snapshot() == states.snapshot()
    assert copy.check(sent(5, epoch=4)) == 105
    copy.appended(sent(10, epoch=4), 300, now_ms=NOW_MS)
    assert len(copy.snapshot()[-1].window) == WINDOW_BATCHES
    copy.expire(before_ms=NOW_MS + 5, is_kept=lambda _: False)
    assert len(copy) == 1


PRODUCERS = st.builds(Producer, st.integers(1, 2), st.integers(0, 1), st.integers(0, 12))
FOLLOWERS = st.integers(1, 2)
"""A producer that continues at its next sequence."""
STEPS = st.lists(
    st.tuples(PRODUCERS | FOLLOWERS, st.integers(1, 2))
    | st.tuples(st.just("truncate"), st.integers(0, 8))
    | st.tuples(st.just("restart"), st.just(0)),
    max_size=40,
)


def next_of(model: ModelLog, producer_id: int) -> Producer:
    known = model.producers().get(producer_id, ModelProducer(0))
    sequence = known.batches[-1].next_sequence if known.batches else 0
    return Producer(producer_id, known.epoch, sequence)


@given(steps=STEPS)
def test_it_agrees_with_a_list_of_all_batches(
    steps: list[tuple[Producer | int | str, int]],
) -> None:
    states, model = ProducerStates(), ModelLog()
    for what, number in steps:
        if what == "truncate":
            model.truncate(max(0, model.end - number))
            states.truncate(model.end)
        elif what == "restart":
            states = ProducerStates(states.snapshot())
        else:
            assert not isinstance(what, str)
            producer = what if isinstance(what, Producer) else next_of(model, what)
            send_to_both(states, model, producer, count=number)


def send_to_both(
    states: ProducerStates, model: ModelLog, producer: Producer, *, count: int
) -> None:
    header = header_of([b"value"] * count, producer=producer)
    verdict = model.verdict(producer, count)
    if isinstance(verdict, type):
        with pytest.raises(verdict):
            states.check(header)
    elif verdict is not None:
        assert states.check(header) == verdict.base_offset
    else:
        assert states.check(header) is None
        states.appended(header, model.end, now_ms=NOW_MS)
        model.append(ModelBatch(model.end, (b"value",) * count, 0, producer))


def test_the_documented_limits_of_producers_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    producers, minutes = re.findall(
        r"partition with ([\d,]+) producers forgets .*, after (\d+) minutes of silence", page
    )[0]

    assert int(producers.replace(",", "")) == PRODUCERS_MAX
    assert int(minutes) * 60_000 == KEPT_AT_LEAST_MS
