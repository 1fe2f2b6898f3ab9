"""The state machine as a whole: random lives, and what a copy of its state is worth."""

import msgspec
import pytest
from hypothesis import given, settings

from tests.coordinator.metadata.clusters import Cluster
from tests.simulation.metadata.invariants import check_same
from tests.simulation.metadata.moves import LIVES, Move, live
from tidelog.coordinator.metadata.state_machine import MetadataStateMachine


@pytest.mark.invariant("I45")
@settings(max_examples=60)
@given(LIVES)
def test_whatever_happens_what_holds_always_holds(moves: list[Move]) -> None:
    life = live(moves)

    data = life.cluster.machine.snapshot()
    restored = MetadataStateMachine.from_snapshot(data)
    assert restored.snapshot() == data
    check_same(restored.state, life.cluster.state)


def test_damage_in_a_snapshot_is_noticed() -> None:
    data = Cluster(1).machine.snapshot()

    for damaged in (data[:-1], b"", b"\x90", data + b"\x00"):
        with pytest.raises(msgspec.MsgspecError):
            MetadataStateMachine.from_snapshot(damaged)
