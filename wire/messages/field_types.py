"""Types of message fields for which `int` says too little. Decoding checks them.

Pure: declarations.
"""

from typing import Annotated, TypeVar

import msgspec

ByteCount = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A number of bytes."""

ProducerEpoch = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
"""As wide as in the header of a record batch."""

ProducerId = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""An identity, or 0 for none."""

Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A length of time."""

LIST_LENGTH_MAX = 100_000
"""What one request may name, of anything. It is more than one broker has of topics or partitions,
and little enough that nobody else notices while it is worked through."""

_Item = TypeVar("_Item")

Listed = Annotated[list[_Item], msgspec.Meta(max_length=LIST_LENGTH_MAX)]
"""A list in a request."""
