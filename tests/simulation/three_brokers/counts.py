"""Runs of three brokers whose metrics are compared with what happened.

Between rounds of traffic, leaders stop, die or pause while nothing is under way. So the counts of
all brokers, over all lives of their processes, are exactly those of the logs, of the replies and of
the events.
"""

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Final, NamedTuple, final

import trio

from tests.broker.queues.workers import JOURNAL, Workers
from tests.broker.replication.three_brokers import NODES, TOPIC, ThreeBrokers, host_of, produce
from tests.coordinator.raft_clients import until
from tests.simulation.machine.world import Simulation, World
from tidelog.broker.server import Broker
from tidelog.client.client import Client
from tidelog.wire.metrics.metric import HistogramValue

ROUNDS: Final = 5
_MESSAGES: Final = 8
_PAUSE_S: Final = 20.0
_ISR_EVENTS: Final = {"isr_shrunk": "shrink", "isr_grown": "expand"}

Labelled = tuple[str, ...]
Readings = dict[Labelled, float]
"""Values by name of the metric, without `tidelog_`, and the values of its labels."""


class Heard(NamedTuple):
    """Events of one process, as its metrics should count them."""

    events: Counter[Labelled]
    elections: Counter[Labelled]
    isr_changes: Counter[Labelled]

    def readings(self) -> Readings:
        """Return them as metrics."""
        named = {
            "events_total": self.events,
            "leader_elections_total": self.elections,
            "isr_changes_total": self.isr_changes,
        }
        return {
            (name, *labels): count for name, some in named.items() for labels, count in some.items()
        }


_EVENT_METRICS: Final = ("events_total", "leader_elections_total", "isr_changes_total")


@final
class Ledger:
    """What the processes of all brokers have reported, and what their metrics said."""

    def __init__(self, brokers: ThreeBrokers) -> None:
        self.totals: Counter[Labelled] = Counter()
        """Sums over the processes that have ended."""
        self._brokers = brokers
        self._heard: dict[str, Heard] = {}
        brokers.world.observe(self._observe)

    def _observe(self, node: str, event: str, fields: Mapping[str, object]) -> None:
        heard = self._heard.setdefault(node, Heard(Counter(), Counter(), Counter()))
        heard.events[event, str(fields.get("severity", "info"))] += 1
        count = fields.get("count")
        if event == "leaders_elected":
            assert isinstance(count, int)
            heard.elections[str(fields["kind"]),] += count
        elif event in _ISR_EVENTS:
            assert isinstance(count, int)
            heard.isr_changes[_ISR_EVENTS[event],] += count

    async def read(self, node_id: int) -> Readings:
        """Return the metrics of a broker, after a comparison with its events."""
        while True:
            before = self._readings(node_id)
            found = await _read(self._brokers.brokers[node_id])
            if before == self._readings(node_id):
                break
        of_events = {labels: n for labels, n in found.items() if labels[0] in _EVENT_METRICS and n}
        differing = set(of_events.items() ^ before.items())
        assert not differing, f"broker {node_id} counts other events than it reports: {differing}"
        return found

    async def end(self, node_id: int) -> None:
        """Add the counts of a process that ends before another task runs."""
        self.totals += Counter(
            {
                labels: int(n)
                for labels, n in (await self.read(node_id)).items()
                if _is_total(labels)
            }
        )

    def begin(self, node_id: int) -> None:
        """Forget the events of the process before, which metrics of the next one have not."""
        del self._heard[host_of(node_id)]

    def _readings(self, node_id: int) -> Readings:
        return self._heard[host_of(node_id)].readings()


def _is_total(labels: Labelled) -> bool:
    return labels[0].endswith("_total")


async def _read(broker: Broker) -> Readings:
    return {
        (family.metric.name.removeprefix("tidelog_"), *labels.values): value
        for family in await broker.metrics.collect()
        for labels, value in family.samples
        if not isinstance(value, HistogramValue)
    }


@final
class CountedRun:
    """Rounds of traffic and faults."""

    def __init__(self, brokers: ThreeBrokers, random: Random) -> None:
        self.ledger = Ledger(brokers)
        self._brokers = brokers
        self._random = random
        self._faults = (self._stop, self._kill, self._pause)

    async def run(self) -> Counter[Labelled]:
        """Return the sums of all counts, after a comparison with all that happened."""
        brokers = self._brokers
        brokers.start()
        await brokers.serve()
        queue_id = await brokers.with_client(_create)
        workers = Workers(brokers, queue_id)
        for number in range(ROUNDS):
            await self._work(workers, number)
            await self._random.choice(self._faults)(await brokers.leads())
        await self._work(workers, ROUNDS)
        for node_id in NODES:
            await self.ledger.end(node_id)
        self._check(workers)
        return self.ledger.totals

    async def _work(self, workers: Workers, number: int) -> None:
        """Send some messages and have all of them deleted."""
        brokers = self._brokers
        await until(lambda: len(brokers.brokers) == len(NODES), 120)
        await brokers.all_in_sync()

        async def send(client: Client) -> None:
            await produce(client, _MESSAGES, start=number * _MESSAGES)

        await brokers.with_client(send)
        workers.should_stop = False
        brokers.world.add_node(f"worker{number}").start(workers.work)
        await until(lambda: len(workers.deleted) == (number + 1) * _MESSAGES, 120)
        workers.should_stop = True
        await trio.sleep(2)
        for node_id in NODES:
            await self.ledger.read(node_id)

    async def _stop(self, node_id: int) -> None:
        await self.ledger.end(node_id)
        self._brokers.stop(node_id)
        await until(lambda: self._brokers.machines[node_id].process is None, 120)
        self._start(node_id)

    async def _kill(self, node_id: int) -> None:
        await self.ledger.end(node_id)
        self._brokers.kill(node_id)
        await until(lambda: self._brokers.leader(JOURNAL) not in {None, node_id}, 120)
        self._start(node_id)

    async def _pause(self, node_id: int) -> None:
        self._brokers.machines[node_id].pause(_PAUSE_S)
        await trio.sleep(_PAUSE_S + 1)

    def _start(self, node_id: int) -> None:
        self.ledger.begin(node_id)
        self._brokers.start(node_id)

    def _check(self, workers: Workers) -> None:
        (length,) = {self._brokers.end_of(node) for node in NODES}
        counted = self.ledger.totals
        # A reply may be lost: the next delivery of a message tells how many there were.
        received = {each.offset: each.receive_count for each in workers.deliveries}
        expected = {
            "topic_received_records_total": length,
            "queue_sent_total": length,
            "queue_received_total": sum(received.values()),
            "queue_deleted_total": len(workers.deleted),
        }
        found = {name: counted[name, TOPIC] for name in expected}
        assert found == expected, f"metrics say {found}, the logs and replies {expected}"


async def _create(client: Client) -> bytes:
    await client.admin.create_topic(TOPIC, 1, replication_factor=3)
    queue = await client.admin.create_queue(TOPIC, visibility_timeout="60s", receive_acks="all")
    return queue.queue_id


def run_counted(seed: int) -> Counter[str]:
    """Execute one run; return the sums of all counts, by metric and labels."""

    async def run(world: World) -> Counter[Labelled]:
        return await CountedRun(ThreeBrokers(world), world.streams.stream("faults")).run()

    totals = Simulation(seed).run(run)
    return Counter({" ".join(labels): count for labels, count in totals.items()})
