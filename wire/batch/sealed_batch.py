"""The sealed record batch: the stored form of a batch of an encrypted topic.

Pure: no clock, no I/O, and no cipher of its own. `docs/formats/sealed_batch.md` has a worked
example, byte by byte.

The header stays in the clear. The payload is sealed by AES-256-GCM, which also authenticates the
header and the place of the batch:

    offset size field
        88    4 key id              the data key of the topic
        92   16 salt                with the data key, it makes the key of this batch
       108    8 counter             unique among the batches with this salt: the nonce
       116    4 batch CRC-32C       sealed: that of the plain batch, as its producer computed it
       120      payload             sealed
         n   16 tag

Both checksums cover the sealed bytes: recovery, scrubbing, replication and repair need no key. The
batch CRC of the plain batch is inside, so a consumer still verifies what the producer computed.

Authenticated, but not encrypted, are the topic id, the partition, and of the header the base
offset, the leader epoch, and everything from byte 32 on, with the key id and the salt behind it.
The durable position and the checksums are not: each replica writes its own.
"""

import struct
from typing import Final, NamedTuple, Protocol

from tidelog.wire.batch.record_batch import (
    FLAG_SEALED,
    HEADER_SIZE,
    BatchHeader,
    header_of,
    restamp_payload,
)
from tidelog.wire.env.env import BytesLike

_PREFIX: Final = struct.Struct("<I16sQ")
_KEY: Final = struct.Struct("<I16s")
_NONCE: Final = struct.Struct("<IQ")
_PLACE: Final = struct.Struct("<16sI")
_CRC: Final = struct.Struct("<I")
_SEALED_AT: Final = HEADER_SIZE + _PREFIX.size
_CRC_AT: Final = HEADER_SIZE - _CRC.size
"""Where the sealed CRC is in a plain batch while it is sealed or opened: so that the payload needs
no copy, the CRC takes the end of the header for a moment."""
_LEADER_FIELDS: Final = slice(8, 20)
_PRODUCER_FIELDS: Final = slice(32, HEADER_SIZE + _KEY.size)
SALT_SIZE: Final = 16
TAG_SIZE: Final = 16
SEAL_OVERHEAD: Final = _PREFIX.size + _CRC.size + TAG_SIZE
"""Bytes that a sealed batch is longer than the plain one."""
PAYLOAD_MAX: Final = (1 << 32) - 1 - SEAL_OVERHEAD
"""Maximum payload of a batch that can be sealed, in bytes."""


class BrokenSealError(Exception):
    """The tag of a sealed batch does not match its bytes, its place and its key."""


class Aead(Protocol):
    """AES-256-GCM with one key."""

    def encrypt_into(
        self, data: BytesLike, target: memoryview, *, nonce: bytes, associated_data: BytesLike
    ) -> None:
        """Fill `target` with ciphertext and tag: 16 bytes more than `data`, which is elsewhere."""
        ...

    def decrypt_into(
        self, data: BytesLike, target: memoryview, *, nonce: bytes, associated_data: BytesLike
    ) -> None:
        """Fill `target` with the plaintext: 16 bytes fewer than `data`, which is elsewhere.

        After an error, its contents are undefined.

        Raises:
            BrokenSealError: The tag does not match.
        """
        ...


class BatchPlace(NamedTuple):
    """The log of a batch. A sealed batch cannot be opened in another one."""

    topic_id: bytes
    partition: int


class SealKey(NamedTuple):
    """The key of some batches, made of a data key and a salt."""

    key_id: int
    """Number of the data key, from 1."""
    salt: bytes
    aead: Aead


class SealId(NamedTuple):
    """The key with which a batch was sealed."""

    key_id: int
    salt: bytes


def seal_id(batch: BytesLike) -> SealId:
    """Return the key of a sealed batch, whose checksums are right.

    Raises:
        BrokenSealError: The batch is shorter than any sealed one.
    """
    if len(batch) < HEADER_SIZE + SEAL_OVERHEAD:
        raise BrokenSealError(f"a sealed batch of {len(batch)} bytes is too short")
    return SealId(*_KEY.unpack_from(batch, HEADER_SIZE))


def seal(
    batch: memoryview, header: BatchHeader, key: SealKey, *, place: BatchPlace, counter: int
) -> tuple[memoryview, BatchHeader]:
    """Return the sealed form of a plain batch that has its base offset and leader epoch.

    Args:
        batch: The plain batch. The last bytes of its header are changed during the call.
        header: Its header.
        key: The key; its data key is a current one of the topic.
        place: The log that the batch is for.
        counter: A number that was never used with this salt and data key.
    """
    assert not header.is_sealed, "a batch is sealed once"
    length = header.payload_length + SEAL_OVERHEAD
    sealed = bytearray(HEADER_SIZE + length)
    sealed[:HEADER_SIZE] = batch[:HEADER_SIZE]
    _PREFIX.pack_into(sealed, HEADER_SIZE, key.key_id, key.salt, counter)
    view = memoryview(sealed)
    restamp_payload(view, payload_length=length, flags=header.flags | FLAG_SEALED, batch_crc=0)
    kept = bytes(batch[_CRC_AT:HEADER_SIZE])
    try:
        _CRC.pack_into(batch, _CRC_AT, header.batch_crc)
        key.aead.encrypt_into(
            batch[_CRC_AT:],
            view[_SEALED_AT:],
            nonce=_NONCE.pack(0, counter),
            associated_data=_bound(view, place),
        )
    finally:
        batch[_CRC_AT:HEADER_SIZE] = kept
    restamp_payload(view, payload_length=length, flags=header.flags | FLAG_SEALED, batch_crc=None)
    return view, header_of(view)


def unseal_into(
    target: memoryview, batch: BytesLike, header: BatchHeader, *, aead: Aead, place: BatchPlace
) -> int:
    """Write the plain batch of a sealed one, with the producer's batch CRC; return its size.

    Args:
        target: Place for the plain batch, as long as the sealed one at least. After an error, its
            contents are undefined.
        batch: The sealed batch.
        header: Its header.
        aead: The cipher of its key.
        place: The log that the batch was read from.

    Raises:
        BrokenSealError: A byte or the place is not that of the seal, or the key is another one.
    """
    assert header.is_sealed, "a plain batch has no seal"
    if header.payload_length < SEAL_OVERHEAD:
        raise BrokenSealError(f"a sealed payload of {header.payload_length} bytes is too short")
    view = memoryview(batch)
    _, _, counter = _PREFIX.unpack_from(view, HEADER_SIZE)
    size = header.size - SEAL_OVERHEAD
    aead.decrypt_into(
        view[_SEALED_AT : header.size],
        target[_CRC_AT:size],
        nonce=_NONCE.pack(0, counter),
        associated_data=_bound(view, place),
    )
    (batch_crc,) = _CRC.unpack_from(target, _CRC_AT)
    target[:HEADER_SIZE] = view[:HEADER_SIZE]
    restamp_payload(
        target,
        payload_length=header.payload_length - SEAL_OVERHEAD,
        flags=header.flags & ~FLAG_SEALED,
        batch_crc=batch_crc,
    )
    return size


def _bound(view: memoryview, place: BatchPlace) -> bytes:
    """Return what the tag covers besides the payload."""
    return b"".join((_PLACE.pack(*place), view[_LEADER_FIELDS], view[_PRODUCER_FIELDS]))
