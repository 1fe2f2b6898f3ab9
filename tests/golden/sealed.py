"""The golden sealed batch: the batch of the format page, sealed with a known data key."""

import struct
from collections.abc import Iterator

from tests.golden.dump import dump_fields, lines
from tests.wire.batches import HEADER_FIELDS, HEADER_SIZE, stored_batch
from tidelog.broker.encryption.aes_gcm import batch_key
from tidelog.wire.batch.record_batch import header_of, stamp_replica
from tidelog.wire.batch.sealed_batch import BatchPlace, SealKey, seal

DATA_KEY = bytes(range(32))
SALT = bytes(range(0xA0, 0xB0))
PLACE = BatchPlace(bytes(range(16)), 3)
COUNTER = 5
_TAG_SIZE = 16


def sealed_batch() -> bytearray:
    """Return the sample batch as a replica of an encrypted topic has it on disk."""
    plain = stored_batch()
    key = SealKey(1, SALT, batch_key(DATA_KEY, SALT))
    sealed, _ = seal(memoryview(plain), header_of(plain), key, place=PLACE, counter=COUNTER)
    stored = bytearray(sealed)
    stamp_replica(memoryview(stored), durable_position=4096)
    return stored


def dump_sealed(batch: bytes) -> Iterator[str]:
    """Yield the lines that explain a sealed batch, byte by byte."""
    yield from dump_fields(batch, HEADER_FIELDS)
    at = HEADER_SIZE
    key_id, salt, counter = struct.unpack_from("<I16sQ", batch, at)
    yield from lines(at, batch[at : at + 4], f"key_id = {key_id}")
    yield from lines(at + 4, batch[at + 4 : at + 20], f"salt = {salt.hex()}")
    yield from lines(at + 20, batch[at + 20 : at + 28], f"counter = {counter}")
    yield from lines(at + 28, batch[at + 28 : -_TAG_SIZE], "batch_crc and payload, sealed")
    yield from lines(len(batch) - _TAG_SIZE, batch[-_TAG_SIZE:], "tag")
