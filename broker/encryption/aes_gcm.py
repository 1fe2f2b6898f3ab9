"""AES-256-GCM of the package `cryptography`, which belongs to the extra `security`.

Pure: no clock, no I/O. Only this module of the product imports the package for records at rest.
"""

import hmac
from typing import Final, final

from tidelog.wire.batch.sealed_batch import Aead, BrokenSealError
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import ConfigError

KEY_SIZE: Final = 32
"""Length of master keys and data keys in bytes."""
_INFO: Final = b"tidelog sealed batch 1"


@final
class AesGcm:
    """See `tidelog.wire.batch.sealed_batch.Aead`."""

    def __init__(self, key: bytes) -> None:
        """Encrypt with a key of 32 bytes.

        Raises:
            ConfigError: The package `cryptography` is not installed.
        """
        assert len(key) == KEY_SIZE, f"a key of {len(key)} bytes"
        try:
            from cryptography.exceptions import InvalidTag  # noqa: PLC0415 (an extra)
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415
        except ImportError as error:
            raise ConfigError(
                "encryption at rest failed: the package `cryptography` is not installed; install"
                " tidelog[security] on this broker"
            ) from error
        self._aead = AESGCM(key)
        self._invalid = InvalidTag

    def encrypt(self, nonce: bytes, data: BytesLike, associated_data: BytesLike) -> bytes:
        """Return ciphertext and tag."""
        return self._aead.encrypt(nonce, data, associated_data)

    def decrypt(self, nonce: bytes, data: BytesLike, associated_data: BytesLike) -> bytes:
        """Return the plaintext.

        Raises:
            BrokenSealError: The tag does not match.
        """
        try:
            return self._aead.decrypt(nonce, data, associated_data)
        except self._invalid as error:
            raise BrokenSealError("the tag does not match") from error

    def encrypt_into(
        self, data: BytesLike, target: memoryview, *, nonce: bytes, associated_data: BytesLike
    ) -> None:
        """See `Aead`."""
        self._aead.encrypt_into(nonce, data, associated_data, target)

    def decrypt_into(
        self, data: BytesLike, target: memoryview, *, nonce: bytes, associated_data: BytesLike
    ) -> None:
        """See `Aead`."""
        try:
            self._aead.decrypt_into(nonce, data, associated_data, target)
        except self._invalid as error:
            raise BrokenSealError("the tag does not match") from error


def batch_key(data_key: bytes, salt: bytes) -> Aead:
    """Return the cipher of all batches with a salt: HKDF-SHA256 of the data key (RFC 5869)."""
    extracted = hmac.digest(salt, data_key, "sha256")
    return AesGcm(hmac.digest(extracted, _INFO + b"\x01", "sha256"))
