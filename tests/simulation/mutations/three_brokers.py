"""Mutations of the shells of replication."""

# A mutation replaces private parts of the code.
# pyright: reportPrivateUsage=false

from typing import Final

from tests.simulation.mutations.mutation import Mutation
from tidelog.broker.replication import fetch_server
from tidelog.isr.leader import PartitionLeader
from tidelog.wire.messages.produce import Acks


def _no_divergence(*_: object, **__: object) -> None:
    return None


def _position_of_the_leader(self: PartitionLeader, acks: Acks) -> int:
    del acks
    return self._position()


MUTATIONS: Final = (
    Mutation(
        "logs-are-not-compared",
        "a leader sends records behind a follower's end without a check of its log",
        (fetch_server, "find_divergence", _no_divergence),
    ),
    Mutation(
        "acknowledged-by-the-leader-alone",
        "acks=all waits for the leader's own disk only",
        (PartitionLeader, "acknowledged_offset", _position_of_the_leader),
    ),
)
