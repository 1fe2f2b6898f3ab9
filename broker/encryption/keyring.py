"""Keyring of a broker: the data keys of topics, unwrapped as they are needed.

Shell without tasks: it reads the metadata of the moment, and draws keys from the environment.
"""

from collections.abc import Callable
from random import Random
from typing import Final, final

from tidelog.broker.encryption.aes_gcm import KEY_SIZE
from tidelog.broker.encryption.master_keys import NONCE_SIZE, MasterKeys, WrongMasterKeyError
from tidelog.coordinator.security.commands import SetDataKey
from tidelog.coordinator.security.records import DataKeySet
from tidelog.coordinator.security.state import SecurityState
from tidelog.wire.errors import KeyUnavailableError

_DATA_KEY_ID_MAX: Final = (1 << 32) - 1


@final
class Keyring:
    """The data keys of all topics, as far as this broker has their master keys.

    Its methods may be called from any thread.
    """

    def __init__(self, security: Callable[[], SecurityState], random: Random) -> None:
        """Read wrapped keys from `security`; draw new keys and salts from `random`."""
        self._security = security
        self._random = random
        self._masters = MasterKeys()
        self._unwrapped: dict[tuple[bytes, int], bytes] = {}
        self.why_no_masters = (
            "this broker has no master key; set master_key_file or master_key_command"
        )
        """The reason while there is no master key."""

    @property
    def masters(self) -> MasterKeys:
        """The master keys of this broker."""
        return self._masters

    def use(self, masters: MasterKeys, why_none: str = "") -> None:
        """Use other master keys from now on; `why_none` explains why there are none."""
        self._masters = masters
        self._unwrapped.clear()
        self.why_no_masters = why_none

    def has_keys(self, topic_id: bytes) -> bool:
        """Return whether a topic has, or had, data keys: its log may have sealed batches."""
        return bool(self._security().data_keys(topic_id))

    def is_destroyed(self, topic_id: bytes, key_id: int) -> bool:
        """Return whether a data key was deleted. Key ids rise, and the newest key stays."""
        keys = self._security().data_keys(topic_id)
        return key_id not in keys and 0 < key_id < max(keys, default=0)

    def has_destroyed_keys(self, topic_id: bytes) -> bool:
        """Return whether a data key of a topic was deleted: key ids have no gaps else."""
        keys = self._security().data_keys(topic_id)
        return len(keys) < max(keys, default=0)

    def current_id(self, topic_id: bytes) -> int:
        """Return the id of the data key for new batches.

        Raises:
            KeyUnavailableError: The topic has no data key yet.
        """
        keys = self._security().data_keys(topic_id)
        if not keys:
            reason = "" if self._masters else f": {self.why_no_masters}"
            raise KeyUnavailableError(f"the topic has no data key yet{reason}")
        return max(keys)

    def data_key(self, topic_id: bytes, key_id: int) -> bytes:
        """Return a data key.

        Raises:
            KeyUnavailableError: It cannot be unwrapped here, or is not known here.
        """
        record = self._security().data_keys(topic_id).get(key_id)
        if record is None:
            self._unwrapped.pop((topic_id, key_id), None)
            raise KeyUnavailableError(f"data key {key_id} of the topic is not known here yet")
        known = self._unwrapped.get((topic_id, key_id))
        if known is None:
            known = self._unwrap(record)
            self._unwrapped[topic_id, key_id] = known
        return known

    def why_locked(self, topic_id: bytes) -> str | None:
        """Return why this broker cannot use all data keys of a topic; `None` if it can."""
        try:
            for key_id in self._security().data_keys(topic_id):
                self.data_key(topic_id, key_id)
            self.current_id(topic_id)
        except KeyUnavailableError as error:
            return str(error)
        return None

    def salt(self, size: int) -> bytes:
        """Return random bytes."""
        return self._random.randbytes(size)

    def new_key(self, topic_id: bytes) -> SetDataKey:
        """Return the command that gives a topic one more data key.

        A broker with a wrong master key adds none, since the others could not use it.

        Raises:
            KeyUnavailableError: This broker has no master key, or cannot use the newest data key.
        """
        self._require_masters()
        keys = self._security().data_keys(topic_id)
        if keys:
            self.data_key(topic_id, max(keys))
        key_id = max(keys, default=0) + 1
        assert key_id <= _DATA_KEY_ID_MAX, "a topic has fewer data keys"
        return self._wrapped(topic_id, key_id, self._random.randbytes(KEY_SIZE), replaces=None)

    def rewrapped(self, record: DataKeySet) -> SetDataKey | None:
        """Return the command that wraps a data key by the current master key; `None` if it is.

        Raises:
            KeyUnavailableError: This broker cannot unwrap it.
        """
        self._require_masters()
        if record.master_id == self._masters.current_id:
            return None
        key = self._unwrap(record)
        return self._wrapped(record.topic_id, record.key_id, key, replaces=record.master_id)

    def _wrapped(
        self, topic_id: bytes, key_id: int, key: bytes, *, replaces: str | None
    ) -> SetDataKey:
        nonce = self._random.randbytes(NONCE_SIZE)
        wrapped = self._masters.wrap(topic_id, key_id, key, nonce=nonce)
        return SetDataKey(topic_id, key_id, wrapped, self._masters.current_id, replaces)

    def _unwrap(self, record: DataKeySet) -> bytes:
        self._require_masters()
        try:
            return self._masters.unwrap(record)
        except WrongMasterKeyError as error:
            raise KeyUnavailableError(
                f"data key {record.key_id} of the topic cannot be used: {error}; give the broker"
                " that master key"
            ) from error

    def _require_masters(self) -> None:
        if not self._masters:
            raise KeyUnavailableError(self.why_no_masters)
