"""A log knows the last batches of its producers again, wherever they come from."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.producer_state import WINDOW_BATCHES, ProducerSnapshot, ProducerStates
from tests.logstore.log_model import ModelBatch, ModelLog, ModelProducer
from tests.logstore.logs import Producer, header_of
from wire.errors import DuplicateSequenceError, FencedProducerError, OutOfOrderSequenceError
from wire.produce import BROKER_PRODUCER_IDS_FROM
from wire.record_batch import BatchHeader

NOW_MS = 1_000_000


def sent(sequence: int, *, count: int = 1, epoch: int = 0, producer_id: int = 7) -> BatchHeader:
    """Return the header of a batch with these sequences."""
    return header_of([b"value"] * count, producer=Producer(producer_id, epoch, sequence))


def after(*sequences: int, epoch: int = 0) -> ProducerStates:
    """Return what is known when batches of one record were appended, from offset 100 on."""
    states = ProducerStates()
    for offset, sequence in enumerate(sequences, start=100):
        states.appended(sent(sequence, epoch=epoch), offset, now_ms=NOW_MS)
    return states


def test_a_producer_that_is_not_known_begins_at_0() -> None:
    """Else a batch that overtakes the first one makes that one look like a duplicate. KIP-360."""
    states = ProducerStates()

    assert states.check(sent(0)) is None
    with pytest.raises(OutOfOrderSequenceError, match="nothing is known") as caught:
        states.check(sent(1))
    assert caught.value.expected_sequence == 0


def test_a_broker_may_begin_anywhere() -> None:
    """It asks what is there before it sends, and has one batch under way."""
    states = ProducerStates()

    assert states.check(sent(1234, producer_id=BROKER_PRODUCER_IDS_FROM)) is None


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
    with pytest.raises(OutOfOrderSequenceError, match="the next one here is 3") as caught:
        after(0, 1, 2).check(sent(4))

    assert caught.value.expected_sequence == 3


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


def test_a_new_epoch_forgets_the_sequences_of_the_old_one() -> None:
    states = after(0, 1, 2, epoch=4)
    states.appended(sent(0, epoch=5), 200, now_ms=NOW_MS)

    assert states.check(sent(0, epoch=5)) == 200
    assert states.check(sent(1, epoch=5)) is None


def test_producers_do_not_disturb_each_other() -> None:
    states = after(0, 1, 2)
    states.appended(sent(0, producer_id=8), 200, now_ms=NOW_MS)

    assert states.check(sent(2)) == 102
    assert states.check(sent(0, producer_id=8)) == 200
    assert len(states) == 2


def test_what_was_truncated_can_be_sent_again() -> None:
    states = after(*range(5))

    states.truncate(103)

    assert states.check(sent(2)) == 102
    assert states.check(sent(3)) is None
    with pytest.raises(OutOfOrderSequenceError):
        states.check(sent(4))


def test_a_producer_of_whom_all_was_truncated_begins_with_the_first_batch_of_that() -> None:
    states = after(*range(10), epoch=4)

    states.truncate(0)

    assert states.check(sent(5, epoch=4)) is None
    with pytest.raises(OutOfOrderSequenceError, match="the next one here is 5"):
        states.check(sent(6, epoch=4))
    assert states.check(sent(0, epoch=5)) is None
    with pytest.raises(FencedProducerError):
        states.check(sent(0, epoch=3))


def test_a_producer_is_forgotten_when_it_was_silent_for_long_whatever_its_records_say() -> None:
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


def test_a_snapshot_brings_back_all_that_is_known() -> None:
    states = after(*range(10), epoch=4)
    states.appended(sent(0, producer_id=8), 200, now_ms=NOW_MS + 5)

    packed = msgspec.msgpack.encode(states.snapshot())
    copy = ProducerStates(msgspec.msgpack.decode(packed, type=list[ProducerSnapshot]))

    assert copy.snapshot() == states.snapshot()
    assert copy.check(sent(5, epoch=4)) == 105
    copy.appended(sent(10, epoch=4), 300, now_ms=NOW_MS)
    assert len(copy.snapshot()[0].window) == WINDOW_BATCHES
    copy.expire(before_ms=NOW_MS + 5, is_kept=lambda _: False)
    assert len(copy) == 1


PRODUCERS = st.builds(Producer, st.integers(1, 2), st.integers(0, 1), st.integers(0, 12))
FOLLOWERS = st.integers(1, 2)
"""A producer that goes on where it is."""
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
            send_to_both(states, model, producer, number)


def send_to_both(states: ProducerStates, model: ModelLog, producer: Producer, count: int) -> None:
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
