"""All clients of a life."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import final

from tests.simulation.administrator import Administrator
from tests.simulation.checkers.book import Book, ProducerRules
from tests.simulation.checkers.history import Operation
from tests.simulation.node import Node
from tests.simulation.plans import Fault, Plan, ProducerPlan
from tests.simulation.process import Program
from tests.simulation.readers import LibraryReader, RawReader
from tests.simulation.sometimes import Sometimes
from tests.simulation.topic_churner import TopicChurner
from tests.simulation.trespasser import Trespasser
from tests.simulation.world import World
from tests.simulation.writers import LibraryWriter, RawWriter, Values
from wire.produce import Acks

_RESTART_S = 0.2


@final
class Clients:
    """All clients of a life; each has a machine of its own, and is started again when it dies."""

    def __init__(self, world: World, plan: Plan, book: Book, sometimes: Sometimes) -> None:
        self.rules: dict[str, ProducerRules] = {}
        self.history: list[Operation] = []
        self.readers: list[RawReader] = []
        self._administrators: list[Administrator | TopicChurner] = []
        self._writers: dict[str, LibraryWriter | RawWriter] = {}
        self._world = world
        self._plan = plan
        self._book = book
        self._sometimes = sometimes
        self._deeds: list[Fault] = []
        self._trespassers: list[Trespasser] = []
        self._topic_id = b""
        self._should_stop = False
        self._programs: dict[str, Callable[[], Program]] = {}
        self._nodes: dict[str, Node] = {}
        self._generations: Counter[str] = Counter()

    def begin(self, topic_id: bytes) -> None:
        """Start them all."""
        self._topic_id = topic_id
        for number, plan in enumerate(self._plan.producers):
            self._add(f"p{number}", partial(self._writer, f"p{number}", plan))
        self._add("reader", lambda: self.reader("reader").run)
        for number in range(self._plan.library_consumer_count):
            self._add(f"c{number}", partial(self._library_reader, f"c{number}"))
        if self._plan.has_administrator:
            self._add("admin", self._administrator)
        if self._plan.churn_pause_s is not None:
            self._add("maker", partial(self._churner, self._plan.churn_pause_s))

    def administrate(self, deed: Fault) -> None:
        """Have the administrator do this as soon as it can."""
        self._deeds.append(deed)

    def trespass(self, dice: float) -> None:
        """Have a client do what must be refused, where nothing may be lost that it refers to."""
        if self._plan.is_durable:
            name = f"t{len(self._trespassers)}"
            self.rules[name] = ProducerRules(acks=Acks.ALL, is_idempotent=True)
            trespasser = Trespasser(
                name, self._book, self._sometimes, topic_id=self._topic_id, dice=dice
            )
            self._trespassers.append(trespasser)
            self._add(name, lambda: trespasser.run)

    def kill(self, dice: float) -> None:
        """Kill one of them, and start it again a little later, as somebody else."""
        names = [name for name in self._nodes if name != "reader" and not name.startswith("t")]
        name = names[int(dice * len(names))]
        if self._nodes[name].process is not None:
            self._sometimes.reached("client died")
            self._nodes[name].kill()
            self._world.clock.call_later(_RESTART_S, lambda: self._start(name))

    async def finish(self) -> None:
        """Let all end their work; return when they have."""
        self._should_stop = True
        for client in (
            *self._writers.values(),
            *self.readers,
            *self._administrators,
            *self._trespassers,
        ):
            client.should_stop = True
        for name in list(self._nodes):
            if not name.startswith("c"):
                await self._ended(name)

    def reader(self, name: str) -> RawReader:
        """Return a new reader of everything."""
        reader = RawReader(
            name,
            self._book,
            self._sometimes,
            topic_id=self._topic_id,
            partition_count=self._plan.partition_count,
        )
        self.readers.append(reader)
        return reader

    async def _ended(self, name: str) -> None:
        while (process := self._nodes[name].process) is not None:
            await process.ended.wait()

    def _add(self, name: str, program: Callable[[], Program]) -> None:
        self._nodes[name] = self._world.add_node(name)
        self._programs[name] = program
        self._start(name)

    def _start(self, name: str) -> None:
        if self._nodes[name].process is None:
            self._nodes[name].start(self._programs[name]())

    def _library_reader(self, name: str) -> Program:
        self._generations[name] += 1
        generation = f"{name}.{self._generations[name]}"
        return LibraryReader(generation, self._book, self.history).run

    def _administrator(self) -> Program:
        administrator = Administrator(self._deeds, self._book, self._sometimes)
        administrator.should_stop = self._should_stop
        self._administrators.append(administrator)
        return administrator.run

    def _churner(self, pause_s: float) -> Program:
        self._generations["maker"] += 1
        generation = f"maker.{self._generations['maker']}"
        self.rules[generation] = ProducerRules(acks=2, is_idempotent=True)
        random = self._world.streams.stream(generation)
        churner = TopicChurner(generation, pause_s, random, self._book, self._sometimes)
        churner.should_stop = self._should_stop
        self._administrators.append(churner)
        return churner.run

    def _writer(self, name: str, plan: ProducerPlan) -> Program:
        self._generations[name] += 1
        generation = f"{name}.{self._generations[name]}"
        self.rules[generation] = ProducerRules(plan.acks, plan.is_idempotent)
        random = self._world.streams.stream(f"writer {generation}")
        values = Values(generation, plan, random, self._plan.partition_count)
        writer: LibraryWriter | RawWriter
        if plan.kind == "library":
            writer = LibraryWriter(plan, values, self._book, self._sometimes, self.history)
        else:
            writer = RawWriter(
                plan,
                values,
                self._book,
                self._sometimes,
                topic_id=self._topic_id,
                partition_count=self._plan.partition_count,
            )
            writer.may_resend = self._plan.is_durable
        writer.should_stop = self._should_stop
        self._writers[name] = writer
        return writer.run
