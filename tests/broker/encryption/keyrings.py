"""Keyrings and key files of tests."""

from random import Random

from tidelog.broker.encryption.keyring import Keyring
from tidelog.broker.encryption.master_keys import MasterKeys, master_key_line
from tidelog.broker.encryption.partition_cipher import PartitionCipher
from tidelog.coordinator.security.commands import RemoveDataKeys
from tidelog.coordinator.security.key_commands import handle_key_command
from tidelog.coordinator.security.state import SecurityState

TOPIC_ID = bytes(range(16))
MASTER = bytes(range(32))
OTHER_MASTER = bytes(range(32, 64))


def key_file(*keys: bytes) -> str:
    """Return the text of a key file."""
    return "".join(f"{master_key_line(key)}\n" for key in keys or (MASTER,))


class Keys:
    """The metadata of a cluster about data keys, and the keyring of one broker."""

    def __init__(self, *masters: bytes) -> None:
        self.state = SecurityState()
        self.ring = Keyring(lambda: self.state, Random(7))
        self.ring.use(MasterKeys(masters or (MASTER,)))

    def rotate(self) -> None:
        """Give the topic one more data key."""
        for record in handle_key_command(self.state, self.ring.new_key(TOPIC_ID), now_ms=1):
            self.state.apply(record)

    def rewrap(self) -> None:
        """Wrap all data keys by the current master key."""
        for known in list(self.state.data_keys(TOPIC_ID).values()):
            command = self.ring.rewrapped(known)
            if command is not None:
                for record in handle_key_command(self.state, command, now_ms=2):
                    self.state.apply(record)

    def destroy(self, *key_ids: int) -> None:
        """Delete data keys."""
        command = RemoveDataKeys(TOPIC_ID, key_ids)
        for record in handle_key_command(self.state, command, now_ms=1):
            self.state.apply(record)

    def cipher(self, partition: int = 0) -> PartitionCipher:
        """Return a cipher that seals."""
        cipher = PartitionCipher(self.ring, TOPIC_ID, partition)
        cipher.is_on = True
        return cipher
