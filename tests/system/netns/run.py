"""Run of a cluster under faults, with clients meanwhile, and the checks at its end.

After the faults every client must complete an operation. Then all brokers stop cleanly, and the
records on their disks are compared with the replies to clients.
"""

import signal
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Final, final

import trio

import tidelog
from tests.simulation.checkers.history import Key
from tests.system.histories.clients import RecordedReader, RecordedWriter
from tests.system.histories.examination import examine
from tests.system.histories.recorder import Recorder, acknowledged_count, load_events, operations_of
from tests.system.integration.processes import DEADLINE_S, TIDELOG
from tests.system.netns.brokers import PORT, Broker
from tests.system.netns.clients import GroupMember, Lookout, connected
from tests.system.netns.fault_injector import FaultInjector
from tests.system.netns.network import Network, address_of
from tests.system.netns.plan import LONGEST_S, faults
from tests.system.netns.replicas import Replica, acknowledged, differences, read_replicas
from tidelog.wire.errors import TidelogError

_COPIED: Final = "copied"
_TOPICS: Final = {"synced": "fsync", _COPIED: "replicated"}
"""Durability by topic."""
_PARTITION_COUNT: Final = 3
_REPLICA_COUNT: Final = 3
_DELIVERY_TIMEOUTS_S: Final = (4.0, 120.0)
"""Delivery timeouts of a topic's writers, in seconds. The first one expires soon, with unknown
outcomes."""
_MEMBER_COUNT: Final = 2
_PAUSE_S: Final = 0.03
"""Seconds between two sends of a writer, so that a long history does not become a large one."""
_VALUE_BYTES_MAX: Final = 200
_LOOK_S: Final = 0.5
_SHORT_RUN: Final = 4
"""Number of its longest faults that fit into a short run."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Settings of a run."""

    seconds: float
    """Seconds with faults."""
    seed: str
    directory: Path
    """Directory of the data directories and the history."""
    say: Callable[[str], object]
    node_count: int = 3
    program: Sequence[str] = field(default_factory=lambda: list(TIDELOG))


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a run."""

    problems: list[str]
    counts: Counter[str]
    """Number of times that each fault has happened."""
    acknowledged_count: int
    replica_count: int
    """Number of replicas that were read."""
    accepted_count: int
    """Number of losses that were accepted, although no record was lost."""


async def run(settings: RunSettings) -> Report:
    """Execute a run in the namespaces of this process.

    Raises:
        trio.TooSlowError: A broker does not start, or does not stop.
    """
    node_ids = tuple(range(1, settings.node_count + 1))
    network = Network(node_ids)
    brokers = {
        each: Broker(each, node_ids, settings.directory / str(each), program=settings.program)
        for each in node_ids
    }
    history = settings.directory / "history.jsonl"
    with history.open("wb", buffering=0) as stream:
        recorder = Recorder(trio.current_time, stream.write)
        async with trio.open_nursery() as machines:
            for broker in brokers.values():
                await machines.start(broker.run)
            for broker in brokers.values():
                await broker.wait_serving()
            settings.say("all brokers serve")
            fault_injector = FaultInjector(network, brokers, machines)
            clients = _Clients(settings, recorder, fault_injector)
            await clients.run()
            for broker in brokers.values():
                broker.signal(signal.SIGTERM)
            with trio.fail_after(DEADLINE_S):
                for broker in brokers.values():
                    await broker.wait_ended()
    problems = clients.problems
    problems += [problem for broker in brokers.values() for problem in broker.problems]
    replicas: dict[int, dict[Key, Replica]] = {}
    for node_id, broker in brokers.items():
        replicas[node_id], wrong = read_replicas(broker.data_directory, node_id)
        problems += wrong
    operations = operations_of(load_events(history))
    problems += differences(acknowledged(operations), replicas, clients.assigned)
    problems += clients.left_out(replicas)
    problems += examine(operations)[0]
    return Report(
        problems,
        fault_injector.counts,
        acknowledged_count(operations),
        sum(map(len, replicas.values())),
        clients.accepted_count,
    )


@final
class _Clients:
    """All clients of the cluster."""

    def __init__(
        self, settings: RunSettings, recorder: Recorder, fault_injector: FaultInjector
    ) -> None:
        self.problems: list[str] = []
        self.assigned: dict[Key, list[int]] = {}
        """By partition, the brokers with a replica."""
        self.accepted_count = 0
        """Number of elected leaders that may have lost records, as far as the cluster knew."""
        self._settings = settings
        self._recorder = recorder
        self._fault_injector = fault_injector
        self._node_ids = range(1, settings.node_count + 1)
        self._addresses = ",".join(f"{address_of(each)}:{PORT}" for each in self._node_ids)
        self._random = Random(settings.seed)
        self._members = [
            GroupMember(f"member {number}", list(_TOPICS), recorder)
            for number in range(_MEMBER_COUNT)
        ]
        self._writers = [
            RecordedWriter(
                f"writer {number} of {topic}",
                topic,
                recorder,
                random=Random(self._random.random()),
                partition_count=_PARTITION_COUNT,
            )
            for topic in _TOPICS
            for number in range(len(_DELIVERY_TIMEOUTS_S))
        ]
        self._written = trio.Event()
        self._stage = ""
        """The awaited event."""

    async def run(self) -> None:
        """Create topics, use them during the faults, and check that all clients work afterwards."""
        async with connected(self._addresses) as client:
            for topic, durability in _TOPICS.items():
                await client.admin.create_topic(
                    topic,
                    _PARTITION_COUNT,
                    replication_factor=_REPLICA_COUNT,
                    config={"durability": durability, "segment_bytes": "256KiB"},
                )
            lookout = Lookout(client)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._look_around, lookout)
                for member in self._members:
                    nursery.start_soon(self._work, member)
                for topic in _TOPICS:
                    nursery.start_soon(self._follow, topic)
                nursery.start_soon(self._write_all)
                with trio.move_on_after(self._settings.seconds):
                    longest_s = min(LONGEST_S, self._settings.seconds / _SHORT_RUN)
                    planned = faults(self._random, self._node_ids, longest_s=longest_s)
                    await self._fault_injector.make(planned, partial(self._rest, lookout))
                self._settings.say("the faults are over")
                with trio.move_on_after(DEADLINE_S) as patience:
                    await self._recover(client, lookout)
                if patience.cancelled_caught:
                    stands = await lookout.describe()
                    self.problems.append(f"not within {DEADLINE_S:g} s: {self._stage}; {stands}")
                nursery.cancel_scope.cancel()

    def left_out(self, replicas: dict[int, dict[Key, Replica]]) -> list[str]:
        """Return the records that no member of the group received."""
        given = self._given()
        problems: list[str] = []
        for key, node_ids in self.assigned.items():
            left = replicas[node_ids[0]].get(key, {}).keys() - given.get(key, set())
            if left:
                problems.append(f"{key}: the group did not get {len(left)}, from {min(left)} on")
        return problems

    async def _rest(self, lookout: Lookout) -> None:
        # No record is lost by that: writes of killed processes are in the page cache.
        self.accepted_count += await lookout.accept_losses(_COPIED)

    async def _recover(self, client: tidelog.Client, lookout: Lookout) -> None:
        """Wait until all partitions are healthy, and every client has completed its work."""
        self._stage = "every partition has a leader"
        await self._rest(lookout)
        for writer in self._writers:
            self._stage = f"{writer.name} continues"
            writer.acknowledged = trio.Event()
            await writer.acknowledged.wait()
            writer.should_stop = True
        self._stage = "all writers end"
        await self._written.wait()
        self._stage = "all replicas are in sync"
        self.assigned = await lookout.wait_in_sync()
        self._stage = "the last readers reach the end"
        await self._read_all(client)

    async def _write_all(self) -> None:
        async with trio.open_nursery() as nursery:
            for number, writer in enumerate(self._writers):
                writer.max_value_bytes = _VALUE_BYTES_MAX
                timeout_s = _DELIVERY_TIMEOUTS_S[number % len(_DELIVERY_TIMEOUTS_S)]
                nursery.start_soon(self._write, writer, timeout_s)
        self._written.set()

    async def _write(self, writer: RecordedWriter, delivery_timeout_s: float) -> None:
        async with (
            connected(self._addresses) as client,
            client.producer(delivery_timeout=delivery_timeout_s) as producer,
        ):
            await writer.run(producer, pause_s=_PAUSE_S)

    async def _follow(self, topic: str) -> None:
        async with connected(self._addresses) as client:
            await RecordedReader(f"follower of {topic}", topic, self._recorder).follow(client)

    async def _work(self, member: GroupMember) -> None:
        async with connected(self._addresses) as client:
            await member.work(client)

    async def _look_around(self, lookout: Lookout) -> None:
        while True:
            with suppress(TidelogError):
                self._fault_injector.roles = await lookout.roles()
            await trio.sleep(_LOOK_S)

    async def _read_all(self, client: tidelog.Client) -> None:
        """Read everything once more, and wait until the group has received all records."""
        count = 0
        for topic in _TOPICS:
            reader = RecordedReader(f"last reader of {topic}", topic, self._recorder)
            count += await reader.read_to_end(client)
        self._stage = "the group receives all records"
        given_count = 0
        while given_count < count:
            await trio.sleep(_LOOK_S)
            given_count = sum(map(len, self._given().values()))

    def _given(self) -> dict[Key, set[int]]:
        given: dict[Key, set[int]] = {}
        for member in self._members:
            for key, offsets in member.offsets.items():
                given.setdefault(key, set()).update(offsets)
        return given
