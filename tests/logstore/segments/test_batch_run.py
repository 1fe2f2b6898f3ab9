"""Runs of batches that a follower accepts from its leader, or refuses."""

import pytest

from tests.logstore.logs import records_in, stored
from tidelog.logstore.segments.batch_run import check_run, fitted, stamp_run
from tidelog.wire.batch.batch_columns import decode_columns
from tidelog.wire.batch.record_batch import HEADER_SIZE, BatchHeader, parse_header
from tidelog.wire.batch.sparse_batch import encode_empty, encode_sparse
from tidelog.wire.errors import BrokerError, CorruptBatchError, InvalidBatchError


def run_of(*epochs: int, start: int = 5) -> bytearray:
    """Return batches of two records each."""
    return bytearray(
        b"".join(
            stored([b"one", b"two"], base_offset=start + 2 * number, leader_epoch=epoch)
            for number, epoch in enumerate(epochs)
        )
    )


def check(data: bytes | bytearray, *, log_end_offset: int = 5) -> list[BatchHeader]:
    return check_run(memoryview(data), log_end_offset=log_end_offset, last_epoch=2, leader_epoch=7)


def test_consecutive_batches_are_accepted() -> None:
    headers = check(run_of(2, 2, 7))

    assert [(header.base_offset, header.leader_epoch) for header in headers] == [
        (5, 2),
        (7, 2),
        (9, 7),
    ]


def test_an_empty_run_has_no_batches() -> None:
    assert check(b"") == []


@pytest.mark.parametrize("start", [4, 6])
def test_batches_that_do_not_begin_at_the_end_of_the_log_are_refused(start: int) -> None:
    with pytest.raises(InvalidBatchError, match=f"begins at offset {start} instead of 5"):
        check(run_of(2, start=start))


def test_a_gap_between_batches_is_refused() -> None:
    with pytest.raises(InvalidBatchError, match="begins at offset 8 instead of 7"):
        check(run_of(2) + run_of(2, start=8))


@pytest.mark.parametrize("epochs", [(1,), (8,), (3, 2)])
def test_leader_epochs_of_a_run_neither_fall_nor_exceed_the_leaders(
    epochs: tuple[int, ...],
) -> None:
    with pytest.raises(InvalidBatchError, match="of leader epoch"):
        check(run_of(*epochs))


@pytest.mark.invariant("I6")
def test_a_flipped_bit_anywhere_is_found() -> None:
    data = run_of(3, 3)
    for position in range(len(data)):
        data[position] ^= 0x10
        with pytest.raises(BrokerError) as caught:
            check(data)
        assert isinstance(caught.value, CorruptBatchError | InvalidBatchError)
        data[position] ^= 0x10


def test_a_run_that_is_cut_anywhere_is_refused() -> None:
    data = run_of(3, 3)
    whole = len(data) // 2
    for end in range(1, len(data)):
        if end != whole:
            with pytest.raises((CorruptBatchError, InvalidBatchError)):
                check(data[:end])


def test_a_replica_stamps_only_its_durable_position() -> None:
    data = run_of(3, 3)
    before = records_in(bytes(data))
    headers = check(data)

    stamp_run(headers, memoryview(data), durable_position=77)

    stamped = [parse_header(data), parse_header(data, headers[0].size)]
    assert [header and header.durable_position for header in stamped] == [77, 77]
    assert records_in(bytes(data)) == before
    assert len(data) > 2 * HEADER_SIZE


def test_an_empty_batch_is_trimmed_to_the_log_end() -> None:
    empty = encode_empty(base_offset=2, end_offset=9, leader_epoch=3)
    run = empty + run_of(4, start=9)

    headers = check(bytes(fitted(memoryview(run), log_end_offset=5)))

    assert [(each.base_offset, each.next_offset, each.record_count) for each in headers] == [
        (5, 9, 0),
        (9, 11, 2),
    ]
    assert headers[0].leader_epoch == 3


@pytest.mark.parametrize("log_end_offset", [2, 9, 11])
def test_a_batch_at_the_log_end_is_not_trimmed(log_end_offset: int) -> None:
    run = memoryview(encode_empty(base_offset=2, end_offset=9, leader_epoch=3) + run_of(4, start=9))
    assert fitted(run, log_end_offset=log_end_offset) is run


def test_a_batch_with_records_in_which_the_log_ends_is_refused() -> None:
    run = memoryview(run_of(2, start=4))
    with pytest.raises(InvalidBatchError, match="begins at offset 4 instead of 5"):
        check(bytes(fitted(run, log_end_offset=5)))


def test_a_sparse_batch_with_records_in_which_the_log_ends_is_not_trimmed() -> None:
    whole = stored([b"one", b"two", b"three"], base_offset=4, leader_epoch=2)
    header = parse_header(whole)
    assert header is not None
    columns = decode_columns(header, whole, uncompressed_length_max=1 << 20)

    run = memoryview(encode_sparse(header, columns, [2]))

    assert fitted(run, log_end_offset=5) is run


def test_a_damaged_empty_batch_is_not_trimmed() -> None:
    empty = encode_empty(base_offset=2, end_offset=9, leader_epoch=3)
    for position in range(len(empty)):
        empty[position] ^= 0x10
        run = memoryview(bytes(empty))
        assert fitted(run, log_end_offset=5) is run
        empty[position] ^= 0x10
