"""Examination of a history of real clients.

Pure. It finds the fifteen anomalies of `HistoryChecker`, and phantoms.
"""

from collections.abc import Sequence

from tests.simulation.checkers.history import (
    Anomaly,
    HistoryChecker,
    Key,
    Operation,
    Poll,
    Send,
    Value,
    unexpected,
)

_SHOWN_CHARACTERS = 200


def examine(operations: Sequence[Operation]) -> tuple[list[str], int]:
    """Return the anomalies of idempotent producers, and the number of lost acknowledged records."""
    found = unexpected(HistoryChecker(operations).check(), uses_subscribe=False)
    problems = [
        f"{kind.name}: {case[:_SHOWN_CHARACTERS]}"
        for kind, cases in found.items()
        for case in cases
    ]
    lost = len(found.get(Anomaly.LOST_WRITE, [])) + len(found.get(Anomaly.UNSEEN, []))
    return problems + phantoms(operations), lost


def phantoms(operations: Sequence[Operation]) -> list[str]:
    """Return values read but never sent to their place: the anomaly that needs no second reader."""
    sent: set[tuple[Key, Value]] = set()
    for operation in operations:
        sent |= {(step.key, step.value) for step in operation.steps if isinstance(step, Send)}
    return [
        f"{operation.process} read {value} at {key} {offset}, which was never sent there"
        for operation in operations
        for step in operation.steps
        if isinstance(step, Poll)
        for key, entries in step.values.items()
        for offset, value in entries
        if (key, value) not in sent
    ]
