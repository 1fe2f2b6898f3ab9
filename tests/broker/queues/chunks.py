"""Chunks and large messages in the format of clients, in few words."""

from tests.broker.world import START_MS
from tidelog.wire.batch.large_messages import ChunkMap, chunk_header, chunks_header
from tidelog.wire.batch.record_batch import Columns, Headers, encode_batch

BODY = "0123456789abcdef"
PARTS = (b"one ", b"two ", b"three")
LENGTH = len(b"".join(PARTS))


def chunk(index: int) -> bytearray:
    """Return a batch with one chunk."""
    columns = Columns(1, values=[PARTS[index]], headers=[(chunk_header(BODY, index),)])
    return encode_batch(columns, first_timestamp_ms=START_MS)


def message(*runs: tuple[int, int], key: bytes | None = None) -> bytearray:
    """Return a batch with a message whose chunks are in the log."""
    headers: Headers = (chunks_header(ChunkMap(BODY, LENGTH, runs)), ("kept", b"yes"))
    columns = Columns(1, keys=[key], values=[b""], headers=[headers])
    return encode_batch(columns, first_timestamp_ms=START_MS)
