"""Durability of acknowledged records, by `acks` and the topic's `durability`.

Pure: no clock, no I/O. `docs/guarantees.md` has the table for users.
"""

from enum import Enum

from tidelog.wire.messages.produce import AckLevel, Acks


class Durability(Enum):
    """The position that a replica reports; a setting of the topic."""

    FSYNC = "fsync"
    """The durable end offset: committed records are on the disks of all in-sync replicas."""
    REPLICATED = "replicated"
    """The log end offset: committed records are in the memory of all in-sync replicas."""


def ack_level(acks: Acks, durability: Durability) -> AckLevel:
    """Return the durability of records at the moment of their acknowledgement."""
    assert acks is not Acks.NONE, "acks none has no acknowledgement"
    if durability is Durability.FSYNC:
        return AckLevel.LEADER_DURABLE if acks is Acks.LEADER else AckLevel.DURABLE
    return AckLevel.APPENDED if acks is Acks.LEADER else AckLevel.REPLICATED
