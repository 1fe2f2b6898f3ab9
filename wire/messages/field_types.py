"""Types of message fields that are narrower than `int`. Decoding checks them.

Pure: declarations.
"""

from typing import Annotated, TypeVar

import msgspec

ByteCount = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A number of bytes."""

ProducerEpoch = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
"""A producer epoch, as wide as in the header of a record batch."""

ProducerId = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A producer id, or 0 for none."""

Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A length of time."""

LIST_LENGTH_MAX = 100_000
"""Maximum items of a list in one request. It exceeds the topics and partitions of one broker, and
the broker processes so many without delaying other requests."""

_Item = TypeVar("_Item")

Listed = Annotated[list[_Item], msgspec.Meta(max_length=LIST_LENGTH_MAX)]
"""A list in a request."""
