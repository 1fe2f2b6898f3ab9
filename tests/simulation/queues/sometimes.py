"""States that a good swarm of runs with queues must reach."""

from typing import Final

from tests.simulation.cluster.sometimes import PROBES as CLUSTER_PROBES

_NOT_WITH_QUEUES: Final = {"group joined"}
"""Runs with queues have no consumer groups."""

FORCED: Final = {
    "journal snapshot early": "a journal got a snapshot that was not due",
}
"""The rare branches in the code of queues, as in `tests.simulation.broker.sometimes`."""

PROBES: Final = {
    **{name: about for name, about in CLUSTER_PROBES.items() if name not in _NOT_WITH_QUEUES},
    "message rejected": "a worker made a message a dead letter",
    "lease extended": "a worker extended its lease",
    "late delete refused": "a worker deleted too late, and somebody else had the message",
    "old receipt refused": "a worker came back with a receipt that was void by then",
    "crash on entry": "who served a queue crashed right after it had written something",
    "handled": "a worker of the library was through with a message",
    "handler failed": "a handler failed, and the worker's on_error was called",
    "dead letters redriven": "dead letters began to come back",
    "queue came and went": "somebody created a queue and deleted it",
    "large message sent": "a message went in chunks",
    "queue purged": "messages of a queue were purged",
    "queue sought back": "a queue was handed out from its beginning once more",
    **{f"forced: {site}": about for site, about in FORCED.items()},
}
"""Name and meaning of every probe."""
