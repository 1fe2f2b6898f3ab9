"""Cipher of one partition: seals what a leader appends, and opens what clients read.

Shell without tasks; callable from any thread.
"""

from collections import OrderedDict
from collections.abc import Iterable
from itertools import count
from typing import Final, final

from tidelog.broker.encryption.aes_gcm import batch_key
from tidelog.broker.encryption.keyring import Keyring
from tidelog.logstore.segments.log_slice import corrupt
from tidelog.wire.batch.record_batch import (
    BatchHeader,
    Columns,
    header_of,
    stamp_leader,
)
from tidelog.wire.batch.sealed_batch import (
    PAYLOAD_MAX,
    SALT_SIZE,
    Aead,
    BatchPlace,
    BrokenSealError,
    SealId,
    SealKey,
    seal,
    seal_id,
    unseal_into,
)
from tidelog.wire.batch.sparse_batch import encode_sparse
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import CorruptRecordError, KeyUnavailableError

_SEALING_KEPT: Final = 16
"""Data keys under which batches are sealed: the newest, and those of batches that compaction
rewrites."""
_KEYS_KEPT: Final = 256
"""Keys that are kept ready, for the batches of as many leaders and runs of compaction."""


@final
class PartitionCipher:
    """See `tidelog.logstore.batch_cipher.BatchCipher`.

    Each cipher draws a salt of its own, and counts its batches: with the data key, the salt makes
    the key of these batches, and the count is their nonce. So no nonce is used twice, also
    if leaders and compactions write the same offsets, and a data key has no limit of batches.
    """

    def __init__(self, keyring: Keyring, topic_id: bytes, partition: int) -> None:
        """Use the data keys of a topic; nothing is sealed before `is_on`."""
        self._keyring = keyring
        self._place = BatchPlace(topic_id, partition)
        self.is_on = False
        """Whether new batches are sealed."""
        self._sealing: dict[int, SealKey] = {}
        self._counter = count()
        self._ready: OrderedDict[SealId, Aead] = OrderedDict()

    def seal(
        self,
        batch: memoryview,
        header: BatchHeader,
        *,
        base_offset: int,
        leader_epoch: int,
        like: BytesLike | None = None,
    ) -> tuple[memoryview, BatchHeader]:
        """See `BatchCipher`."""
        if not self.is_on and like is None:
            return batch, header
        assert header.payload_length <= PAYLOAD_MAX, "frames are shorter"
        key = self._sealing_key(None if like is None else seal_id(like).key_id)
        stamp_leader(batch, base_offset=base_offset, leader_epoch=leader_epoch)
        return seal(batch, header, key, place=self._place, counter=next(self._counter))

    def open(self, header: BatchHeader, batch: BytesLike) -> tuple[BatchHeader, BytesLike]:
        """See `BatchCipher`."""
        if not header.is_sealed:
            return header, batch
        target = memoryview(bytearray(header.size))
        opened = target[: self._open_into(target, header, batch)]
        return header_of(opened), opened

    def _open_into(self, target: memoryview, header: BatchHeader, batch: BytesLike) -> int:
        """Write the plain form of a stored batch; return its size, not above the stored one."""
        if not header.is_sealed:
            target[: header.size] = batch
            return header.size
        try:
            wanted = seal_id(batch)
            if self.is_destroyed(wanted.key_id):
                empty = encode_sparse(header, Columns(0), ())
                target[: len(empty)] = empty
                return len(empty)
            aead = self._opening(wanted)
            return unseal_into(target, batch, header, aead=aead, place=self._place)
        except BrokenSealError as error:
            raise corrupt(header.base_offset, header.next_offset) from error

    def is_destroyed(self, key_id: int) -> bool:
        """Return whether a data key was deleted, and its records with it."""
        return self._keyring.is_destroyed(self._place.topic_id, key_id)

    @property
    def has_destroyed_keys(self) -> bool:
        """Whether a data key of the topic was deleted."""
        return self._keyring.has_destroyed_keys(self._place.topic_id)

    def is_gone(self, batch: BytesLike) -> bool:
        """Return whether the data key of a sealed batch was deleted, and its records with it."""
        try:
            return self.is_destroyed(seal_id(batch).key_id)
        except BrokenSealError:
            return False

    def open_run(
        self, batches: Iterable[tuple[BatchHeader, BytesLike]], *, room_bytes: int
    ) -> memoryview:
        """Return the plain form of consecutive stored batches, until `room_bytes` are full.

        At least one batch is returned, and batches end before a batch that cannot be opened, or
        read: `batches` may raise the same errors.

        Raises:
            KeyUnavailableError: The key of the first batch cannot be used here.
            CorruptRecordError: The seal of the first batch is broken.
        """
        target, filled = memoryview(bytearray(room_bytes)), 0
        try:
            for header, batch in batches:
                if header.size > len(target) - filled:
                    if filled:
                        break
                    target = memoryview(bytearray(header.size))
                filled += self._open_into(target[filled:], header, batch)
        except (KeyUnavailableError, CorruptRecordError):
            if not filled:
                raise
        return target[:filled]

    def _sealing_key(self, key_id: int | None) -> SealKey:
        """Return the key for a batch: of a data key of the topic, or of its newest one."""
        topic_id = self._place.topic_id
        if key_id is None:
            key_id = self._keyring.current_id(topic_id)
        data_key = self._keyring.data_key(topic_id, key_id)
        known = self._sealing.get(key_id)
        if known is None:
            salt = self._keyring.salt(SALT_SIZE)
            if len(self._sealing) >= _SEALING_KEPT:
                self._sealing.clear()
            known = self._sealing[key_id] = SealKey(key_id, salt, batch_key(data_key, salt))
        return known

    def _opening(self, wanted: SealId) -> Aead:
        data_key = self._keyring.data_key(self._place.topic_id, wanted.key_id)
        ready = self._ready.get(wanted)
        if ready is None:
            ready = self._ready[wanted] = batch_key(data_key, wanted.salt)
            if len(self._ready) > _KEYS_KEPT:
                self._ready.popitem(last=False)
        return ready
