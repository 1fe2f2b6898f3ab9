"""Simplifications of a Raft plan."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec

from tests.simulation.raft.plans import Plan
from tests.simulation.shrink import Simplification

_CALM: Final[dict[str, Any]] = {
    "loss": 0.0,
    "duplication": 0.0,
    "spare_count": 0,
    "entries_max": 100,
    "window_messages": 64,
    "snapshot_every": 1000,
    "delay_ms": 2,
    "sync_ms": 1,
    "is_encoded": False,
    "has_return": False,
    "voter_count": 3,
}


def _calmer(name: str, plan: Plan) -> Plan:
    simple = msgspec.structs.replace(plan, **{name: _CALM[name]})
    node_count = simple.voter_count + simple.spare_count
    return simple if all(fault.node <= node_count for fault in plan.faults) else plan


SIMPLIFICATIONS: Final[Sequence[Simplification[Plan]]] = [partial(_calmer, name) for name in _CALM]
"""One for each setting."""
