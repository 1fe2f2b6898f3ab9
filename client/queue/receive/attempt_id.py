"""Receive attempt ids, as brokers take them (SQS: `ReceiveRequestAttemptId`).

Pure: no clock, no I/O.
"""

import hashlib
from typing import Final

ATTEMPT_ID_BYTES: Final = 16
"""Maximum bytes of an id on the wire."""
_GIVEN_BYTES_MAX: Final = 128


def attempt_id_on_wire(given: bytes | str) -> bytes:
    """Return the id of an attempt on the wire: a longer one is replaced by its SHA-256, cut.

    Raises:
        TypeError: It is neither bytes nor text.
        ValueError: It is empty or too long.
    """
    if not isinstance(given, (bytes, str)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"an attempt id is bytes or a str, not {type(given).__name__}")
    chosen = given if isinstance(given, bytes) else given.encode()
    if not 1 <= len(chosen) <= _GIVEN_BYTES_MAX:
        raise ValueError(f"an attempt id has 1 to {_GIVEN_BYTES_MAX} bytes, not {len(chosen)}")
    if len(chosen) <= ATTEMPT_ID_BYTES:
        return chosen
    return hashlib.sha256(chosen).digest()[:ATTEMPT_ID_BYTES]
