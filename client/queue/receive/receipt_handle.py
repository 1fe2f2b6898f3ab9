"""Receipt handles: which message was received, and by whom, as text that any process may use.

Pure: no clock, no I/O. A handle is the receipt of a receive, which only brokers of the queue can
make or read, with the place of one of its messages. It holds no leader epoch: it is as good after
any number of leader changes. Base64 without padding, of the alphabet that is safe in addresses.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

import msgspec

from tidelog.wire.errors import InvalidReceiptError

_VERSION = 1
_NUMBER_END = 1 << 63


class ReceivedPlace(NamedTuple):
    """One message of one receive."""

    partition: int
    offset: int
    receipt: bytes


_Content = tuple[int, int, int, bytes]
"""Version, partition, offset, receipt."""


def handle_of(place: ReceivedPlace) -> str:
    """Return the handle of a message that was received."""
    packed = msgspec.msgpack.encode((_VERSION, *place))
    return urlsafe_b64encode(packed).rstrip(b"=").decode("ascii")


def place_of(handle: str) -> ReceivedPlace:
    """Return what a handle says. Whether it is right is for the broker to say.

    Raises:
        InvalidReceiptError: The text is no handle.
    """
    try:
        packed = urlsafe_b64decode(handle.encode("ascii") + b"=" * (-len(handle) % 4))
        version, partition, offset, receipt = msgspec.msgpack.decode(packed, type=_Content)
    except ValueError:
        raise _not_a_handle(handle) from None
    found = ReceivedPlace(partition, offset, receipt)
    # Decoders pass over what does not belong there.
    is_whole = handle_of(found) == handle and 0 <= min(found[:2]) <= max(found[:2]) < _NUMBER_END
    if version != _VERSION or not is_whole:
        raise _not_a_handle(handle)
    return found


def _not_a_handle(text: str) -> InvalidReceiptError:
    shown = text if len(text) <= 40 else f"{text[:40]}..."  # noqa: PLR2004  (enough to know it by)
    return InvalidReceiptError(f"{shown!r} is no receipt handle; use one that a receive gave")
