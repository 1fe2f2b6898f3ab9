"""Reader of the audit topic at the end of a run: it compares intents with committed changes.

With `audit = required`, each change of a client that took effect must have an intent. A client that
repeats a request leaves further intents; intents without effect are legal as well.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import final

import trio

from tests.simulation.broker.plans import Fault
from tests.simulation.broker.readers import BACKOFF_S
from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.cluster.actors import Host
from tests.simulation.cluster.clients import Clients
from tests.simulation.cluster.machines import addresses
from tests.simulation.cluster.plans import ClusterPlan
from tests.simulation.cluster.return_faults import Injector
from tests.simulation.machine.process import Process
from tidelog.client.client import connect
from tidelog.coordinator.metadata.catalog import TopicAltered, TopicCreated, TopicDeleted
from tidelog.wire.errors import TidelogError
from tidelog.wire.security.audit_topic import AUDIT_TOPIC

_READ_S = 60.0
_Change = tuple[str, str]
"""Action and resource."""


@final
class AuditReader:
    """Counts the committed changes of topics, and finds the intents of all of them."""

    def __init__(self, host: Host, plan: ClusterPlan) -> None:
        """Watch the committed metadata of a run."""
        self._host = host
        self._plan = plan
        self._names: dict[bytes, str] = {}
        self._changes: Counter[_Change] = Counter()
        self._intents: Counter[_Change] = Counter()
        host.cluster_history.on_committed.append(self._committed)

    @property
    def objections(self) -> Mapping[str, ViolationError]:
        """See `Actors`."""
        return {}

    @property
    def counts(self) -> Mapping[str, int]:
        """See `Actors`."""
        return {
            "audited changes": self._changes.total(),
            "audit intents": self._intents.total(),
        }

    async def prepare(self) -> None:
        """See `Actors`."""

    def begin(self, clients: Clients) -> None:
        """See `Actors`."""

    def faults(self, injector: Injector) -> Mapping[str, Callable[[Fault], None]]:
        """See `Actors`."""
        del injector
        return {}

    async def finish(self) -> None:
        """See `Actors`."""

    async def look(self) -> None:
        """Read the audit topic, and compare.

        Raises:
            ViolationError: A change has no intent, or the topic cannot be read.
        """
        process = self._host.world.add_node("audit reader").start(self._read)
        with trio.move_on_after(_READ_S):
            await process.ended.wait()
            missing = self._changes - self._intents
            if missing:
                raise ViolationError("EachChangeIsAudited", f"no intents of {dict(missing)}")
            return
        raise ViolationError("Liveness", "the audit topic cannot be read")

    def _committed(self, records: Sequence[object]) -> None:
        for record in records:
            if isinstance(record, TopicCreated):
                is_of_client = record.queue is None and record.staging_of is None
                if is_of_client and record.name != AUDIT_TOPIC:
                    self._names[record.topic_id] = record.name
                    self._changes["topic.create", f"topic:{record.name}"] += 1
            elif isinstance(record, TopicDeleted | TopicAltered):
                name = self._names.get(record.topic_id)
                action = "delete" if isinstance(record, TopicDeleted) else "alter"
                if name is not None:
                    self._changes[f"topic.{action}", f"topic:{name}"] += 1

    async def _read(self, process: Process) -> None:
        while True:
            found: dict[str, _Change] = {}
            try:
                async with (
                    connect(addresses(self._plan), env=process.env) as client,
                    client.consumer(AUDIT_TOPIC, auto_offset_reset="earliest") as consumer,
                ):
                    async for batch in consumer.batches(await consumer.end_offsets()):
                        for record in batch:
                            fields = json.loads(record.value or b"{}")
                            if fields["stage"] == "intent":
                                found[fields["id"]] = (fields["action"], fields["resource"])
                self._intents = Counter(found.values())
                break
            except TidelogError:
                await trio.sleep(BACKOFF_S)
