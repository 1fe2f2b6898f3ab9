"""Master keys: they wrap the data keys of topics, and never leave the brokers.

Pure: no clock, no I/O. A key file has one line for each master key:

    tidelog-master-1 BASE64

The first one wraps new data keys. The others only unwrap: they are there while master keys change.
Empty lines and lines that begin with `#` are ignored.
"""

import base64
import binascii
import hashlib
from collections.abc import Sequence
from typing import Final, final

from tidelog.broker.encryption.aes_gcm import KEY_SIZE, AesGcm
from tidelog.coordinator.security.records import DataKeySet
from tidelog.wire.batch.sealed_batch import BrokenSealError
from tidelog.wire.errors import ConfigError

LINE_PREFIX: Final = "tidelog-master-1"
_ID_DOMAIN: Final = b"tidelog master key id 1\0"
_WRAP_DOMAIN: Final = b"tidelog data key 1\0"
_ID_SIZE: Final = 8
NONCE_SIZE: Final = 12
MASTERS_MAX: Final = 64
"""Maximum number of keys in a file."""


class WrongMasterKeyError(Exception):
    """A data key cannot be unwrapped; the text says why, without any key."""


def master_key_line(key: bytes) -> str:
    """Return the line of a key file for a key."""
    return f"{LINE_PREFIX} {base64.b64encode(key).decode()}"


def master_id_of(key: bytes) -> str:
    """Return the public id of a master key: 16 hexadecimal digits of a hash."""
    return hashlib.sha256(_ID_DOMAIN + key).digest()[:_ID_SIZE].hex()


@final
class MasterKeys:
    """The master keys of one broker. Its text form shows their ids only."""

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        """Wrap with the first key, and unwrap with all.

        Raises:
            ConfigError: The package `cryptography` is not installed.
        """
        self._ciphers = {master_id_of(key): AesGcm(key) for key in keys}

    @classmethod
    def parse(cls, text: str, source: str) -> "MasterKeys":
        """Return the keys of a key file; `source` names it in errors.

        Raises:
            ConfigError: A line is malformed, or there is no key. The text has no part of a key.
        """
        keys: list[bytes] = []
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if words[0] != LINE_PREFIX or len(words) != 2:  # noqa: PLR2004 (name and key)
                raise ConfigError(
                    f"{source} cannot be read: line {number} is not `{LINE_PREFIX} BASE64`; create"
                    " a key file with `tidelog key create-master`"
                )
            keys.append(_decoded(words[1], f"line {number} of {source}"))
        if not 0 < len(keys) <= MASTERS_MAX:
            raise ConfigError(
                f"{source} cannot be used: it has {len(keys)} master keys, not 1 to {MASTERS_MAX};"
                " create a key file with `tidelog key create-master`"
            )
        return cls(keys)

    def __repr__(self) -> str:
        """Return the ids."""
        return f"MasterKeys({', '.join(self._ciphers)})"

    def __bool__(self) -> bool:
        """Return whether there is a key."""
        return bool(self._ciphers)

    @property
    def ids(self) -> Sequence[str]:
        """Ids of all keys; the first one wraps."""
        return list(self._ciphers)

    @property
    def current_id(self) -> str:
        """Id of the key that wraps."""
        return next(iter(self._ciphers))

    def wrap(self, topic_id: bytes, key_id: int, data_key: bytes, *, nonce: bytes) -> bytes:
        """Return a data key as the metadata keeps it; `nonce` is 12 random bytes."""
        bound = _bound(topic_id, key_id)
        return nonce + self._ciphers[self.current_id].encrypt(nonce, data_key, bound)

    def unwrap(self, record: DataKeySet) -> bytes:
        """Return a data key.

        Raises:
            WrongMasterKeyError: Its master key is not here, or the record was tampered with.
        """
        cipher = self._ciphers.get(record.master_id)
        if cipher is None:
            has = f"has {', '.join(self._ciphers)}" if self._ciphers else "has no master key"
            raise WrongMasterKeyError(
                f"it is wrapped by master key {record.master_id}, and this broker {has}"
            )
        nonce, wrapped = record.wrapped[:NONCE_SIZE], record.wrapped[NONCE_SIZE:]
        try:
            return cipher.decrypt(nonce, wrapped, _bound(record.topic_id, record.key_id))
        except (BrokenSealError, ValueError) as error:
            raise WrongMasterKeyError(
                f"its wrapping by master key {record.master_id} is not intact in the metadata"
            ) from error


def _decoded(text: str, place: str) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_SIZE:
        raise ConfigError(
            f"{place} has no master key: it must be {KEY_SIZE} bytes in Base64; create a key with"
            " `tidelog key create-master`"
        )
    return key


def _bound(topic_id: bytes, key_id: int) -> bytes:
    return _WRAP_DOMAIN + topic_id + key_id.to_bytes(4, "little")
