"""Types of message fields for which `int` says too little. Decoding checks them.

Pure: declarations.
"""

from typing import Annotated

import msgspec

ByteCount = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A number of bytes."""

ProducerEpoch = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
"""As wide as in the header of a record batch."""

ProducerId = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""An identity, or 0 for none."""

Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A length of time."""
