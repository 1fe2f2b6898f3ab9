"""A position in a log: an offset, and where its bytes are."""

import msgspec


class LogPosition(msgspec.Struct, frozen=True, gc=False):
    """A place between two batches."""

    offset: int
    segment_base_offset: int
    position: int
