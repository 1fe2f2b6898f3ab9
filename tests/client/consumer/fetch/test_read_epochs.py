"""Leader epochs of read records, which a fetch and a commit name (KIP-320)."""

import pytest

from tests.client.consumer.fetch.test_fetch_state import AT, land, plan, subscription
from tests.client.consumer.fetch.test_fetched_batches import chunk_of, encoded
from tidelog.client.consumer.fetch.fetch_state import Fetch, FetchState
from tidelog.client.consumer.fetch.read_epochs import ReadEpochs
from tidelog.wire.errors import CorruptRecordError, LogTruncatedError
from tidelog.wire.messages.fetch import PartitionFetched


def read_from(offset: int, *epochs: tuple[int, int], end: int) -> ReadEpochs:
    made = ReadEpochs()
    made.restart(offset)
    made.read(epochs, end)
    return made


def asked(fetch: Fetch) -> list[tuple[int, int | None]]:
    return [(part.fetch_offset, part.last_fetched_epoch) for part in fetch.request.partitions]


def truncated(made: FetchState, fetch: Fetch, **details: int) -> None:
    error = LogTruncatedError("other records", **details)
    made.on_complete(fetch, [PartitionFetched(0, 30, 0, error.to_wire())], memoryview(b""), now=0.0)


def test_the_epoch_of_each_read_record_is_known() -> None:
    epochs = read_from(0, (1, 0), (3, 4), (4, 7), end=9)

    assert [epochs.before(offset) for offset in (0, 1, 4, 5, 7, 8, 9, 10)] == [
        None, 1, 1, 3, 3, 4, 4, None,
    ]  # fmt: skip


def test_a_start_with_an_epoch_knows_that_of_the_record_below() -> None:
    epochs = ReadEpochs()
    epochs.restart(10, 3)
    assert (epochs.before(10), epochs.before(9)) == (3, None)
    epochs.restart(0, 3)
    assert epochs.before(0) is None
    epochs.restart(10)
    assert epochs.before(10) is None


def test_records_that_are_read_again_may_have_another_epoch() -> None:
    epochs = read_from(0, (1, 0), (3, 4), end=9)

    epochs.cut(4)
    assert (epochs.before(4), epochs.before(5)) == (1, None)
    epochs.read([(5, 4)], 6)

    assert (epochs.before(4), epochs.before(5), epochs.before(6)) == (1, 5, 5)


def test_an_older_epoch_than_before_is_the_begin_of_another_log() -> None:
    epochs = read_from(0, (7, 0), end=4)

    epochs.read([(5, 4)], 6)

    assert (epochs.before(6), epochs.before(4)) == (5, None)


def test_only_the_latest_epochs_are_kept() -> None:
    epochs = read_from(0, *((number, number) for number in range(100)), end=100)

    assert epochs.before(100) == 99
    assert epochs.before(50) is None


@pytest.mark.parametrize(
    ("details", "first"),
    [
        ({"truncated_to": 6, "fetch_offset": 9, "leader_epoch": 3}, 6),  # The end of epoch 3.
        ({"truncated_to": 8, "fetch_offset": 9, "leader_epoch": 2}, 5),  # All of epoch 3 is lost.
        ({"truncated_to": 8, "fetch_offset": 9}, 0),  # No epoch of the log was read.
    ],
)
def test_the_first_lost_offset_is_that_of_the_first_epoch_that_the_log_lacks(
    details: dict[str, int], first: int
) -> None:
    epochs = read_from(0, (1, 0), (3, 5), end=9)

    found = epochs.located(AT, LogTruncatedError("other records", **details))

    assert (found.truncated_to, found.fetch_offset, found.at) == (first, 9, AT)
    assert str(found).startswith(f"orders/0: {9 - first} offsets, {first} to 9 (exclusive)")


def test_a_chunk_knows_the_epochs_of_its_batches() -> None:
    chunk = chunk_of(encoded(10) + encoded(12) + encoded(14, leader_epoch=2))

    assert chunk.next_offset() == 16
    assert chunk.leader_epochs == [(0, 10), (2, 14)]


def test_a_fetch_names_the_epoch_of_the_last_fetched_batch_and_a_seek_clears_it() -> None:
    made = subscription(AT)
    (first,) = plan(made)
    assert asked(first) == [(10, None)]
    land(made, first, encoded(10, leader_epoch=4))

    (second,) = plan(made)
    assert asked(second) == [(12, 4)]
    made.seek(AT, 12)
    (third,) = plan(made)
    assert asked(third) == [(12, None)]


def test_records_that_were_read_before_the_loss_come_first_and_then_the_error_until_a_seek() -> (
    None
):
    made = subscription(AT)
    (first,) = plan(made)
    land(made, first, encoded(10, leader_epoch=4))
    (second,) = plan(made)
    truncated(made, second, truncated_to=11, fetch_offset=12, leader_epoch=4)

    batch = made.take(None, 0.0)
    assert batch is not None
    assert batch.next_offset == 12
    with pytest.raises(LogTruncatedError, match="1 offsets, 11 to 12") as caught:
        made.take(None, 0.0)
    assert caught.value.at == AT
    (again,) = plan(made, 10.0)
    assert asked(again) == [(12, 4)]

    made.seek(AT, 11)
    (sought,) = plan(made, 10.0)
    assert asked(sought) == [(11, None)]


def test_records_that_were_prefetched_and_dropped_were_not_read() -> None:
    made = subscription(AT)
    (fetch,) = plan(made)
    corrupt = bytearray(encoded(12, leader_epoch=5))
    corrupt[-1] ^= 1
    land(made, fetch, encoded(10, leader_epoch=4) + bytes(corrupt))
    assert made.take(None, 0.0) is not None
    assert made.epochs(AT).before(14) == 5

    with pytest.raises(CorruptRecordError):
        made.take(None, 0.0)

    assert (made.epochs(AT).before(12), made.epochs(AT).before(14)) == (4, None)
