"""Receipt handles: the receipt of a delivery as text, which any process may use.

Pure: no clock, no I/O. A handle is the receipt of a receive, which only brokers of the queue can
create or read, with the place of one of its messages. It holds no leader epoch: it stays valid
after any number of leader changes. Base64 without padding, in the URL-safe alphabet.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

import msgspec

from tidelog.wire.errors import InvalidReceiptError

_VERSION = 1
_NUMBER_END = 1 << 63


class ReceivedPlace(NamedTuple):
    """Message of a receive."""

    partition: int
    offset: int
    receipt: bytes


_Content = tuple[int, int, int, bytes]
"""Version, partition, offset, receipt."""


def handle_of(place: ReceivedPlace) -> str:
    """Return the handle of a received message."""
    packed = msgspec.msgpack.encode((_VERSION, *place))
    return urlsafe_b64encode(packed).rstrip(b"=").decode("ascii")


def place_of(handle: str) -> ReceivedPlace:
    """Return the content of a handle. The broker decides whether it is valid.

    Raises:
        InvalidReceiptError: The text is not a handle.
    """
    try:
        packed = urlsafe_b64decode(handle.encode("ascii") + b"=" * (-len(handle) % 4))
        version, partition, offset, receipt = msgspec.msgpack.decode(packed, type=_Content)
    except ValueError:
        raise _not_a_handle(handle) from None
    found = ReceivedPlace(partition, offset, receipt)
    # Decoders skip characters outside of their alphabet.
    is_whole = handle_of(found) == handle and 0 <= min(found[:2]) <= max(found[:2]) < _NUMBER_END
    if version != _VERSION or not is_whole:
        raise _not_a_handle(handle)
    return found


def _not_a_handle(text: str) -> InvalidReceiptError:
    shown = text if len(text) <= 40 else f"{text[:40]}..."  # noqa: PLR2004  (enough to know it by)
    return InvalidReceiptError(f"{shown!r} is no receipt handle; use one from a receive")
