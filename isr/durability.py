"""What an acknowledgement of a partition means.

Pure: no clock, no I/O. `docs/guarantees.md` has the table for users.
"""

from enum import Enum

from tidelog.wire.messages.produce import AckLevel, Acks


class Durability(Enum):
    """What a replica reports as its position; a setting of the topic."""

    FSYNC = "fsync"
    """Its durable end offset: committed records are on the disks of all in-sync replicas."""
    REPLICATED = "replicated"
    """Its log end offset: committed records are in the memory of all in-sync replicas."""


def ack_level(acks: Acks, durability: Durability) -> AckLevel:
    """Return what is true of records at the moment of their acknowledgement."""
    assert acks is not Acks.NONE, "nothing is acknowledged"
    if durability is Durability.FSYNC:
        return AckLevel.LEADER_DURABLE if acks is Acks.LEADER else AckLevel.DURABLE
    return AckLevel.APPENDED if acks is Acks.LEADER else AckLevel.REPLICATED
