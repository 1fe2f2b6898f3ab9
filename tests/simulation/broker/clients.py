"""Clients of a broker's run."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import final

import trio

from tests.simulation.broker.administrator import Administrator
from tests.simulation.broker.invalid_producer import InvalidProducer
from tests.simulation.broker.partition_growth import Growth
from tests.simulation.broker.plans import Fault, Plan, ProducerPlan
from tests.simulation.broker.readers import LibraryReader, RawReader
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.broker.topic_churner import TopicChurner
from tests.simulation.broker.writers import LibraryWriter, RawWriter, Values
from tests.simulation.checkers.admin_checkers import PartitionsStay
from tests.simulation.checkers.history import Operation
from tests.simulation.checkers.run_history import ProducerRules, RunHistory
from tests.simulation.machine.node import Node
from tests.simulation.machine.process import Program
from tests.simulation.machine.world import World
from tidelog.wire.messages.produce import Acks

_RESTART_S = 0.2


@final
class Role(Enum):
    """The work that a client does in a run."""

    PRODUCER = "producer"
    READER = "reader"
    CONSUMER = "consumer"
    ADMINISTRATOR = "administrator"
    TRESPASSER = "trespasser"


@final
@dataclass(frozen=True, slots=True)
class _Client:
    """A machine and its program."""

    role: Role
    node: Node
    program: Callable[[], Program]
    """Factory of the next program; each has a new client identity."""

    def start(self) -> None:
        """Start the program, unless it runs."""
        if self.node.process is None:
            self.node.start(self.program())


@final
class Clients:
    """All clients of a run. Each has its own machine, and restarts after its process dies."""

    def __init__(
        self,
        world: World,
        plan: Plan,
        run_history: RunHistory,
        *,
        sometimes: Sometimes,
        rules: dict[str, ProducerRules],
    ) -> None:
        """Start without clients; `rules` gets the rules of each producer, by its name."""
        self.history: list[Operation] = []
        self.readers: list[RawReader] = []
        self._administrators: list[Administrator | TopicChurner] = []
        self._writers: dict[str, LibraryWriter | RawWriter] = {}
        self._consumers: dict[str, LibraryReader] = {}
        self._rules = rules
        self._world = world
        self._plan = plan
        self._run_history = run_history
        self._sometimes = sometimes
        self._commands: list[Fault] = []
        self._invalid_producers: list[InvalidProducer] = []
        self._raw_values: list[Values] = []
        self.growth = Growth(plan.partition_count, run_history.checker(PartitionsStay), sometimes)
        self.growth.listeners.append(self._grown)
        self._topic_id = b""
        self._should_stop = False
        self._clients: dict[str, _Client] = {}
        self._generations: Counter[str] = Counter()

    def begin(self, topic_id: bytes) -> None:
        """Start all clients."""
        self._topic_id = topic_id
        for number, plan in enumerate(self._plan.producers):
            self._add(Role.PRODUCER, f"p{number}", partial(self._writer, f"p{number}", plan))
        is_older = self._plan.reading.is_older
        self._add(Role.READER, "reader", lambda: self.reader("reader", is_older=is_older).run)
        for number in range(self._plan.library_consumer_count):
            self._add(Role.CONSUMER, f"c{number}", partial(self._library_reader, f"c{number}"))
        if self._plan.has_administrator:
            self._add(Role.ADMINISTRATOR, "admin", self._administrator)
        if self._plan.churn_pause_s is not None:
            self._add(Role.ADMINISTRATOR, "maker", partial(self._churner, self._plan.churn_pause_s))

    def administrate(self, command: Fault) -> None:
        """Queue a command for the administrator."""
        self._commands.append(command)

    def trespass(self, dice: float) -> None:
        """Send a request that must be refused, if no record that it refers to may be lost."""
        if self._plan.is_durable:
            name = f"t{len(self._invalid_producers)}"
            self._rules[name] = ProducerRules(acks=Acks.ALL, is_idempotent=True)
            invalid_producer = InvalidProducer(
                name, self._run_history, self._sometimes, topic_id=self._topic_id, dice=dice
            )
            self._invalid_producers.append(invalid_producer)
            self._add(Role.TRESPASSER, name, lambda: invalid_producer.run)

    def kill(self, dice: float) -> None:
        """Kill a client, and restart it a little later with a new identity."""
        mortals = [
            client
            for client in self._clients.values()
            if client.role not in {Role.READER, Role.TRESPASSER}
        ]
        client = mortals[int(dice * len(mortals))]
        if client.node.process is not None:
            self._sometimes.reached("client died")
            client.node.kill()
            self._world.clock.call_later(_RESTART_S, client.start)

    def names(self, role: Role) -> list[str]:
        """Return the names of the machines of a role."""
        return [name for name, client in self._clients.items() if client.role is role]

    async def finish(self) -> None:
        """Stop all clients; return when they have ended."""
        self._should_stop = True
        for client in (
            *self._writers.values(),
            *self.readers,
            *self._administrators,
            *self._invalid_producers,
        ):
            client.should_stop = True
        await trio.sleep(_RESTART_S)  # A client that was killed just now has restarted by then.
        for role in Role:
            if role is not Role.CONSUMER:
                await self._ended(role)
        # The writers have ended, so the readers find the final end of each log.
        for consumer in self._consumers.values():
            consumer.stop()
        await self._ended(Role.CONSUMER)

    def reader(self, name: str, *, is_older: bool = False) -> RawReader:
        """Return a new reader of all partitions; see `RawReader` for an older one."""
        reader = RawReader(
            name,
            self._run_history,
            self._sometimes,
            topic_id=self._topic_id,
            partition_count=self.growth.count,
            fetch_bytes=self._plan.reading.raw_fetch_bytes,
            is_older=is_older,
        )
        self.readers.append(reader)
        return reader

    def _grown(self, count: int) -> None:
        """Announce the number of partitions to clients that do not refresh their metadata."""
        for reader in self.readers:
            reader.grow(count)
        for values in self._raw_values:
            values.partition_count = count

    async def _ended(self, role: Role) -> None:
        for name in self.names(role):
            while (process := self._clients[name].node.process) is not None:
                await process.ended.wait()

    def _add(self, role: Role, name: str, program: Callable[[], Program]) -> None:
        client = _Client(role, self._world.add_node(name), program)
        self._clients[name] = client
        client.start()

    def _library_reader(self, name: str) -> Program:
        self._generations[name] += 1
        generation = f"{name}.{self._generations[name]}"
        consumer = LibraryReader(
            generation, self._run_history, self.history, reading=self._plan.reading
        )
        self._consumers[name] = consumer
        return consumer.run

    def _administrator(self) -> Program:
        administrator = Administrator(
            self._commands, self._run_history, self._sometimes, growth=self.growth
        )
        administrator.should_stop = self._should_stop
        self._administrators.append(administrator)
        return administrator.run

    def _churner(self, pause_s: float) -> Program:
        self._generations["maker"] += 1
        generation = f"maker.{self._generations['maker']}"
        self._rules[generation] = ProducerRules(acks=2, is_idempotent=True)
        random = self._world.streams.stream(generation)
        churner = TopicChurner(
            generation, pause_s, random, run_history=self._run_history, sometimes=self._sometimes
        )
        churner.should_stop = self._should_stop
        self._administrators.append(churner)
        return churner.run

    def _writer(self, name: str, plan: ProducerPlan) -> Program:
        self._generations[name] += 1
        generation = f"{name}.{self._generations[name]}"
        self._rules[generation] = ProducerRules(plan.acks, plan.is_idempotent)
        random = self._world.streams.stream(f"writer {generation}")
        values = Values(generation, plan, random, partition_count=self.growth.count)
        writer: LibraryWriter | RawWriter
        if plan.kind == "library":
            writer = LibraryWriter(
                plan, values, self._run_history, sometimes=self._sometimes, history=self.history
            )
        else:
            self._raw_values.append(values)
            writer = RawWriter(
                plan,
                values,
                self._run_history,
                sometimes=self._sometimes,
                topic_id=self._topic_id,
                may_resend=self._plan.is_durable,
            )
        writer.should_stop = self._should_stop
        self._writers[name] = writer
        return writer.run
