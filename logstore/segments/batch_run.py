"""Runs of consecutive batches that a leader sends to its followers.

Pure: no clock, no I/O. The batches have their offsets and epochs already. A follower checks that
they are intact and continue its own log.
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
    """Return a leader's batches, with the first one trimmed to the end of a log if possible.

    A compacted leader may have one empty batch for several, of which the follower has some. The
    follower then appends the rest as an empty batch, and truncates nothing.
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
    """Check the batches of a leader, and return their headers.

    They must begin at `log_end_offset`, after a record of `last_epoch`, and come from the leader of
    `leader_epoch`.

    Raises:
        CorruptBatchError: A checksum is wrong: bytes were damaged in transit or on its disk.
        InvalidBatchError: Batches are incomplete or not consecutive.
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
    """Stamp the durable position of this replica into each batch, in place."""
    position = 0
    for header in headers:
        stamp_replica(batches[position : position + HEADER_SIZE], durable_position=durable_position)
        position += header.size
