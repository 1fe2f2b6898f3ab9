"""What a producer is told about records that were acknowledged.

Pure: declarations.
"""

from collections.abc import Sequence

import msgspec

from tidelog.wire.messages.produce import AckLevel

__all__ = ["AckLevel", "RangeReceipt", "Receipt"]


class Receipt(msgspec.Struct, frozen=True):
    """Where one record is."""

    topic: str
    partition: int
    offset: int | None
    """`None` when nobody knows: with `acks=0`, and for a record that was sent again so late that
    the broker only remembered having it."""
    timestamp_ms: int
    ack_level: AckLevel | None
    """What is true of the record at the moment of the reply, `None` when `offset` is."""
    is_duplicate: bool = False
    """Messages of FIFO queues: it was sent before, within the window, and all else says where the
    original is."""

    @property
    def message_id(self) -> str:
        """The name of a message in its topic, as who receives it sees it; empty if not known."""
        return "" if self.offset is None else f"{self.partition}-{self.offset}"


class RangeReceipt(msgspec.Struct, frozen=True):
    """Where records of one `send_many` are that follow each other in one partition.

    The record `values[indexes[k]]` has the offset `offset + k`.
    """

    topic: str
    partition: int
    offset: int | None
    """Offset of the first of these records; see `Receipt.offset`."""
    indexes: Sequence[int]
    """Places in the `values` that were sent, in the order of their offsets; a `range` when the
    records had no keys."""
    ack_level: AckLevel | None
