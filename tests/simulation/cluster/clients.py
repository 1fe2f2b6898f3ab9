"""Clients of a run of a cluster; each has a machine of its own."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Protocol, final

import trio

from tests.simulation.broker.partition_growth import Growth
from tests.simulation.broker.plans import ProducerPlan, ReadingPlan
from tests.simulation.broker.readers import LibraryReader
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.broker.writers import LibraryWriter, Values
from tests.simulation.checkers.history import Operation
from tests.simulation.checkers.run_history import ProducerRules, RunHistory
from tests.simulation.cluster.cluster_history import ClusterHistory
from tests.simulation.cluster.group_members import GroupMembers, Member
from tests.simulation.cluster.machines import addresses
from tests.simulation.cluster.partition_grower import Grower, GrowthIsCommitted
from tests.simulation.cluster.plans import ClusterPlan
from tests.simulation.cluster.replica_mover import Mover
from tests.simulation.cluster.stray_client import StrayClient
from tests.simulation.cluster.topic_maker import TopicMaker
from tests.simulation.cluster.transaction_client import TransactionClient
from tests.simulation.machine.node import Node
from tests.simulation.machine.process import Program
from tests.simulation.machine.world import World

_RESTART_S = 0.2
_VISITOR = ProducerPlan(
    kind="raw",
    acks=2,
    is_idempotent=False,
    compression="none",
    pause_s=0.0,
    burst_max=1,
    max_value_bytes=10,
    delivery_timeout_s=1.0,
)


class Worker(Protocol):
    """A program that works until it is told to stop."""

    should_stop: bool


@final
@dataclass(frozen=True, slots=True)
class _Client:
    """A machine and its program."""

    node: Node
    program: Callable[[], Program]
    """Factory of the next program; each has a new client identity."""

    def start(self) -> None:
        """Start the program, unless it runs."""
        if self.node.process is None:
            self.node.start(self.program())


@final
class Clients:
    """All clients. A client that dies restarts with a new identity."""

    def __init__(
        self,
        world: World,
        plan: ClusterPlan,
        run_history: RunHistory,
        *,
        cluster_history: ClusterHistory,
        sometimes: Sometimes,
        rules: dict[str, ProducerRules],
    ) -> None:
        """Start without clients; `rules` gets the rules of each producer, by its name."""
        self.history: list[Operation] = []
        self._rules = rules
        self._world = world
        self._plan = plan
        self._run_history = run_history
        self._cluster_history = cluster_history
        self._sometimes = sometimes
        self._topic_id = b""
        self._should_stop = False
        self._is_dismissed = False
        self._is_last_alone = False
        self._all_values: list[Values] = []
        self._clients: dict[str, _Client] = {}
        self._generations: Counter[str] = Counter()
        self._workers: dict[str, Worker] = {}
        self._consumers: dict[str, LibraryReader] = {}
        self._members: dict[str, Member] = {}
        self.growth = Growth(plan.partition_count, GrowthIsCommitted(cluster_history), sometimes)
        self.members = GroupMembers(b"")
        """Work that the members of the group have done."""
        self.transaction_client: TransactionClient | None = None
        """The client of transactions, if the plan has one."""

    @property
    def names(self) -> list[str]:
        """The machines of all clients."""
        return list(self._clients)

    def begin(self, topic_id: bytes) -> None:
        """Start all clients."""
        self._topic_id = topic_id
        self.members = GroupMembers(topic_id)
        if self._plan.quiet_after_s is not None:
            self._world.clock.call_later(self._plan.quiet_after_s, self._leave_last_alone)
        for number in range(self._plan.member_count):
            self.add(f"m{number}", partial(self._member, f"m{number}"))
        for number, plan in enumerate(self._plan.producers):
            self.add(f"p{number}", partial(self._writer, f"p{number}", plan))
        for number in range(self._plan.consumer_count):
            self.add(f"c{number}", partial(self._consumer, f"c{number}"))
        if self._plan.churn_pause_s is not None:
            self.add("maker", partial(self._maker, self._plan.churn_pause_s))
        if self._plan.move_pause_s is not None:
            self.add("mover", self._mover)
        if self._plan.grow_pause_s is not None:
            self.add("grower", self._grower)
        if self._plan.visit_pause_s is not None:
            self.add("visitor", self._visitor)
        if self._plan.stage_pause_s is not None:
            self.add("stager", self._staging(self._world.streams.stream("stager")))

    def kill(self, dice: float) -> None:
        """Kill a client, and restart it a little later."""
        client = list(self._clients.values())[int(dice * len(self._clients))]
        if client.node.process is not None:
            self._sometimes.reached("client died")
            client.node.kill()
            self._world.clock.call_later(_RESTART_S, client.start)

    def leave_group(self, dice: float) -> None:
        """Stop a member of the group cleanly, and start another one a little later."""
        if self._members:
            name = list(self._members)[int(dice * len(self._members))]
            self._members[name].stop()
            self._start_again(name, _RESTART_S + 2 * dice)

    def _start_again(self, name: str, after_s: float) -> None:
        """Restart a client that ends by itself, after so long, and when it has ended."""

        def start() -> None:
            if self._clients[name].node.process is None:
                self._clients[name].start()
            elif not self._is_dismissed:
                self._start_again(name, _RESTART_S)

        self._world.clock.call_later(after_s, start)

    async def finish(self) -> None:
        """Stop all clients; return when they have ended."""
        self._should_stop = True
        for worker in self._workers.values():
            worker.should_stop = True
        await trio.sleep(_RESTART_S)  # A client that was killed just now has restarted by then.
        for name in self._clients:
            if name not in self._consumers and name not in self._members:
                await self._ended(name)
        # The writers have ended, so the readers find the final end of each log.
        for name, consumer in self._consumers.items():
            consumer.stop()
            await self._ended(name)

    async def dismiss(self, ends: dict[int, int]) -> None:
        """Stop the members of the group when they have processed all records below these ends."""
        self.members.is_hurried = True
        while self._members and self._crew_is_behind(ends):  # noqa: ASYNC110  (there is no event)
            await trio.sleep(0.1)
        self._is_dismissed = True
        for name, member in self._members.items():
            member.stop()
            await self._ended(name)

    def _crew_is_behind(self, ends: dict[int, int]) -> bool:
        committed = self.members.committed(self._cluster_history.groups, ends)
        return any(committed[partition] < end for partition, end in ends.items())

    async def _ended(self, name: str) -> None:
        while (process := self._clients[name].node.process) is not None:
            await process.ended.wait()

    def add(self, name: str, program: Callable[[], Program]) -> None:
        """Start a client on a machine of its own; `program` makes its programs."""
        client = _Client(self._world.add_node(name), program)
        self._clients[name] = client
        client.start()

    def generation(self, name: str) -> str:
        """Return a new name for the next client of this machine."""
        self._generations[name] += 1
        return f"{name}.{self._generations[name]}"

    def employ(self, name: str, worker: Worker) -> None:
        """Add a worker that must be told to stop at the end."""
        worker.should_stop = self._should_stop
        self._workers[name] = worker

    def _values(self, generation: str, plan: ProducerPlan) -> Values:
        self._rules[generation] = ProducerRules(plan.acks, plan.is_idempotent)
        random = self._world.streams.stream(f"writer {generation}")
        values = Values(generation, plan, random, partition_count=self.growth.count)
        values.leaves_last_alone = self._is_last_alone
        self._all_values.append(values)
        return values

    def _leave_last_alone(self) -> None:
        """Stop writes to the last partition, so that its logs do not change."""
        self._is_last_alone = True
        for values in self._all_values:
            values.leaves_last_alone = True

    def _writer(self, name: str, plan: ProducerPlan) -> Program:
        values = self._values(self.generation(name), plan)
        writer = LibraryWriter(
            plan,
            values,
            self._run_history,
            sometimes=self._sometimes,
            history=self.history,
            addresses=addresses(self._plan),
        )
        self.employ(name, writer)
        return writer.run

    def _consumer(self, name: str) -> Program:
        consumer = LibraryReader(
            self.generation(name),
            self._run_history,
            self.history,
            reading=ReadingPlan(
                read_from="followers" if self._plan.reads_from_followers else "leader",
                is_older=self._plan.has_older_readers,
            ),
            addresses=addresses(self._plan),
        )
        self._consumers[name] = consumer
        return consumer.run

    def _maker(self, pause_s: float) -> Program:
        random = self._world.streams.stream(self.generation("maker"))
        maker = TopicMaker(
            self._plan,
            pause_s,
            random,
            cluster_history=self._cluster_history,
            sometimes=self._sometimes,
        )
        self.employ("maker", maker)
        return maker.run

    def _mover(self) -> Program:
        random = self._world.streams.stream(self.generation("mover"))
        mover = Mover(self._plan, random, self._sometimes)
        self.employ("mover", mover)
        return mover.run

    def _grower(self) -> Program:
        random = self._world.streams.stream(self.generation("grower"))
        grower = Grower(self._plan, random, self.growth)
        self.employ("grower", grower)
        return grower.run

    def _staging(self, random: Random) -> Callable[[], Program]:
        """Return a factory that restarts the same writer, so that it resumes its work."""
        self.transaction_client = client = TransactionClient(self._plan, random, self._sometimes)

        def again() -> Program:
            self.employ("stager", client.writer)
            return client.run

        return again

    def _visitor(self) -> Program:
        values = self._values(self.generation("visitor"), _VISITOR)
        visitor = StrayClient(
            self._plan,
            values,
            self._run_history,
            cluster_history=self._cluster_history,
            sometimes=self._sometimes,
            topic_id=self._topic_id,
        )
        self.employ("visitor", visitor)
        return visitor.run

    def _member(self, name: str) -> Program:
        random = self._world.streams.stream(self.generation(name))
        member = Member(
            addresses(self._plan),
            self.members,
            random,
            cluster_history=self._cluster_history,
            sometimes=self._sometimes,
        )
        self._members[name] = member
        return member.run
