"""Batches one after the other, as a leader sends them to its followers.

Pure: no clock, no I/O. They have their offsets and epochs already; what a follower has to know is
that they are what its leader has, and go on where its own log ends.
"""

from collections.abc import Sequence

from tidelog.wire.batch.record_batch import (
    HEADER_SIZE,
    BatchHeader,
    has_valid_payload,
    parse_header,
    stamp_replica,
)
from tidelog.wire.batch.sparse_batch import encode_empty
from tidelog.wire.errors import CorruptBatchError, InvalidBatchError


def fitted(batches: memoryview, *, log_end_offset: int) -> memoryview:
    """Return what a leader sent so that it begins where a log ends, if that can be.

    A leader whose log was compacted may have one empty batch for several of which the follower has
    some: the rest of that is as empty. Nothing is cut from the log for it.
    """
    header = parse_header(batches) if batches else None
    if (
        header is None
        or header.record_count
        or not header.is_sparse
        or not header.base_offset < log_end_offset < header.next_offset
        or not has_valid_payload(header, batches[: header.size])
    ):
        return batches
    rest = encode_empty(
        base_offset=log_end_offset,
        end_offset=header.next_offset,
        leader_epoch=header.leader_epoch,
    )
    return memoryview(rest + batches[header.size :])


def check_run(
    batches: memoryview, *, log_end_offset: int, last_epoch: int, leader_epoch: int
) -> list[BatchHeader]:
    """Check batches that a leader sent, and return their headers.

    They begin at `log_end_offset`, behind a record of `last_epoch`, and were sent by the leader of
    `leader_epoch`.

    Raises:
        CorruptBatchError: A checksum is wrong: bytes were damaged on their way, or on its disk.
        InvalidBatchError: Batches are not whole, or do not follow on each other.
    """
    headers: list[BatchHeader] = []
    position = 0
    while position < len(batches):
        header = parse_header(batches, position)
        if header is None:
            raise CorruptBatchError(
                f"the batch for offset {log_end_offset} has a damaged header, or none"
            )
        end = position + header.size
        if end > len(batches):
            raise InvalidBatchError(f"the batch at offset {header.base_offset} is not whole")
        if header.base_offset != log_end_offset:
            raise InvalidBatchError(
                f"a batch begins at offset {header.base_offset} instead of {log_end_offset}"
            )
        if not last_epoch <= header.leader_epoch <= leader_epoch:
            raise InvalidBatchError(
                f"the batch at offset {header.base_offset} is of leader epoch"
                f" {header.leader_epoch}, not between {last_epoch} and {leader_epoch}"
            )
        if not has_valid_payload(header, batches[position:end]):
            raise CorruptBatchError(
                f"the payload of the batch at offset {header.base_offset} does not match its"
                " CRC-32C"
            )
        headers.append(header)
        position, log_end_offset, last_epoch = end, header.next_offset, header.leader_epoch
    return headers


def stamp_run(
    headers: Sequence[BatchHeader], batches: memoryview, *, durable_position: int
) -> None:
    """Write into each batch what this replica decides, in place."""
    position = 0
    for header in headers:
        stamp_replica(batches[position : position + HEADER_SIZE], durable_position=durable_position)
        position += header.size
