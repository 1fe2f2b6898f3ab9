"""Messages of one partition for one receive, or the reason that there are none.

Declarations.
"""

from enum import Enum

import msgspec

from tidelog.wire.messages.queues import PartitionReceived
from tidelog.wire.transport.write_buffer import FileRegion


class Delivery(msgspec.Struct, frozen=True):
    """Messages of one partition for one receive."""

    received: PartitionReceived
    pieces: list[bytes | FileRegion]


class EmptyReason(Enum):
    """Reason that a receive got no messages of one partition."""

    NO_MESSAGES = 0
    NOT_KNOWN_YET = 1
    """The partition is being loaded, or read from its disk; its waiters are called afterwards."""
