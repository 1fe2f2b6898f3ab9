"""Probes: states that a good swarm of runs with queues must reach."""

from typing import Final

from tests.simulation.cluster.sometimes import PROBES as CLUSTER_PROBES

_NOT_WITH_QUEUES: Final = {"group joined"}
"""Probes that runs with queues lack: they have no consumer groups."""

FORCED: Final = {
    "cold header": "headers of batches in the page cache were read in a thread",
    "journal snapshot early": "a journal got a snapshot that was not due",
}
"""Rare branches in the code of queues, as in `tests.simulation.broker.sometimes`."""

PROBES: Final = {
    **{name: about for name, about in CLUSTER_PROBES.items() if name not in _NOT_WITH_QUEUES},
    "message rejected": "a worker made a message a dead letter",
    "lease extended": "a worker extended its lease",
    "late delete refused": "a worker deleted too late, after another delivery",
    "old receipt refused": "a worker used a receipt that was void",
    "crash on entry": "a journal leader crashed just after it had written an entry",
    "handled": "a worker of the library settled a message",
    "handler failed": "a handler failed, and the worker's on_error was called",
    "dead letters redriven": "a redrive began",
    "dead letters redriven by id": "a redrive with an id began",
    "queue came and went": "a queue was created and deleted",
    "large message sent": "a large message was sent in chunks",
    "queue purged": "messages of a queue were purged",
    "queue sought back": "a queue was sought to its beginning",
    **{f"forced: {site}": about for site, about in FORCED.items()},
}
"""Name and meaning of every probe."""
