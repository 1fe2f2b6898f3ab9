"""Bugs planted into the shells of replication, for lives of three brokers to catch."""

# A planted bug sits inside of what it breaks.
# pyright: reportPrivateUsage=false

from typing import Final

from tests.simulation.mutations.mutant import Mutant
from tidelog.broker.replication import fetch_server as serving
from tidelog.isr.leader import PartitionLeader
from tidelog.wire.messages.produce import Acks


def _no_divergence(*_: object, **__: object) -> None:
    return None


def _position_of_the_leader(self: PartitionLeader, acks: Acks) -> int:
    del acks
    return self._position()


MUTANTS: Final = (
    Mutant(
        "logs are not compared",
        "a leader sends what comes behind a follower's end, whatever the follower has",
        (serving, "find_divergence", _no_divergence),
    ),
    Mutant(
        "acknowledged by the leader alone",
        "acks=all waits for the leader's own disk only",
        (PartitionLeader, "acknowledged_offset", _position_of_the_leader),
    ),
)
