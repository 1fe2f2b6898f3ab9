"""Mutations of encryption at rest."""

# Reads private state of keyrings and ciphers.
# pyright: reportPrivateUsage=false

from typing import Final

from tests.simulation.mutations.mutation import Mutation
from tidelog.broker.encryption.aes_gcm import KEY_SIZE
from tidelog.broker.encryption.keyring import Keyring
from tidelog.broker.encryption.partition_cipher import PartitionCipher
from tidelog.coordinator.security.commands import SetDataKey
from tidelog.logstore.segments.log_slice import corrupt
from tidelog.wire.batch.record_batch import BatchHeader
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import KeyUnavailableError

_open_into = PartitionCipher._open_into
_seal = PartitionCipher.seal


def _open_or_corrupt(
    self: PartitionCipher, target: memoryview, header: BatchHeader, batch: BytesLike
) -> int:
    try:
        return _open_into(self, target, header, batch)
    except KeyUnavailableError as error:
        raise corrupt(header.base_offset, header.next_offset) from error


def _seal_if_possible(
    self: PartitionCipher,
    batch: memoryview,
    header: BatchHeader,
    *,
    base_offset: int,
    leader_epoch: int,
    like: BytesLike | None = None,
) -> tuple[memoryview, BatchHeader]:
    try:
        return _seal(
            self, batch, header, base_offset=base_offset, leader_epoch=leader_epoch, like=like
        )
    except KeyUnavailableError:
        return batch, header


def _is_not_usable(self: Keyring, topic_id: bytes, key_id: int) -> bool:
    try:
        self.data_key(topic_id, key_id)
    except KeyUnavailableError:
        return True
    return False


def _new_key_of_any_master(self: Keyring, topic_id: bytes) -> SetDataKey:
    self._require_masters()
    key_id = max(self._security().data_keys(topic_id), default=0) + 1
    return self._wrapped(topic_id, key_id, self._random.randbytes(KEY_SIZE), replaces=None)


MUTATIONS: Final = (
    Mutation(
        "a-missing-key-is-damage",
        "a batch whose data key cannot be used counts as damaged",
        (PartitionCipher, "_open_into", _open_or_corrupt),
    ),
    Mutation(
        "records-in-the-clear-without-a-key",
        "a leader that cannot use the data key stores records as they are",
        (PartitionCipher, "seal", _seal_if_possible),
    ),
    Mutation(
        "a-missing-key-counts-as-deleted",
        "a batch whose data key cannot be used is read as one without records",
        (Keyring, "is_destroyed", _is_not_usable),
    ),
    Mutation(
        "a-wrong-master-key-wraps-new-data-keys",
        "a broker adds a data key although it cannot use the newest one",
        (Keyring, "new_key", _new_key_of_any_master),
    ),
)
