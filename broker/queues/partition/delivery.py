"""What a receive gets of one partition.

Pure: no clock, no I/O.
"""

from enum import Enum
from typing import NamedTuple

from tidelog.wire.messages.queues import PartitionReceived
from tidelog.wire.protocol.write_buffer import FileRegion


class Taken(NamedTuple):
    """What a receive got of one partition."""

    received: PartitionReceived
    pieces: list[bytes | FileRegion]


class Nothing(Enum):
    """Why a receive got nothing of one partition."""

    THERE_IS_NONE = 0
    NOT_KNOWN_YET = 1
    """It is being loaded, or somebody reads from its disk; who waits here is told."""


def taken_of(received: PartitionReceived, pieces: list[bytes | FileRegion]) -> Taken:
    """Return what was received together with its batches."""
    size = sum(piece.length if isinstance(piece, FileRegion) else len(piece) for piece in pieces)
    return Taken(
        PartitionReceived(
            received.partition, received.receipt, received.runs, size, received.deadline_ms
        ),
        pieces,
    )
