"""One life by a plan: a broker, its clients, the faults, and a tail in which all must be well.

In the tail all faults end. Every producer must get one more record acknowledged and every reader
must reach the end, in bounded time. Then the power is cut once more, and what the last reader
finds is compared with everything that was ever said.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from traceback import format_exception
from typing import final

import msgspec
import trio

from tests.simulation.broker_host import TOPIC, BrokerHost
from tests.simulation.checkers.book import Book, Checker, ProducerRules, ViolationError
from tests.simulation.checkers.broker_promises import (
    CleanStopKeeps,
    DamageIsReal,
    DurableStays,
    HonestStatus,
    LogStartRises,
    RotIsFound,
)
from tests.simulation.checkers.history import (
    HistoryChecker,
    Operation,
    Outcome,
    Poll,
    unexpected,
)
from tests.simulation.checkers.log_promises import (
    AcknowledgedStays,
    BelowHighWatermark,
    Contiguous,
    HighWatermarkRises,
    NoDuplicates,
    NothingPhantom,
    ProducerOrder,
    StableOffsets,
)
from tests.simulation.clock import DeadlockError, EventBudgetError
from tests.simulation.faults import Nemesis
from tests.simulation.node import Node
from tests.simulation.plans import Plan, ProducerPlan
from tests.simulation.process import Process, Program
from tests.simulation.readers import LibraryReader, RawReader, with_connection
from tests.simulation.sometimes import Sometimes
from tests.simulation.world import Simulation, World
from tests.simulation.writers import LibraryWriter, RawWriter, Values
from wire import api
from wire.rpc import RpcConnection
from wire.topics import CreateTopicRequest

_PATIENCE_S = 60.0
_EVENTS_PER_S_MAX = 5_000
_CLIENT_RESTART_S = 0.2


class LifeReport(msgspec.Struct, frozen=True):
    """What there is to say of one life."""

    plan: Plan
    checker: str | None
    """Which checker objected, `None` when none did."""
    problem: str
    """What it said."""
    sometimes: dict[str, int]
    counts: dict[str, int]
    """Events, crashes, acknowledged and read records."""
    simulated_s: float
    fingerprint: str


@final
class _Clients:
    """All clients of a life; each has a machine of its own, and is started again when it dies."""

    def __init__(self, world: World, plan: Plan, book: Book, sometimes: Sometimes) -> None:
        self.rules: dict[str, ProducerRules] = {}
        self.history: list[Operation] = []
        self.readers: list[RawReader] = []
        self._writers: dict[str, LibraryWriter | RawWriter] = {}
        self._world = world
        self._plan = plan
        self._book = book
        self._sometimes = sometimes
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

    def kill(self, dice: float) -> None:
        """Kill one of them, and start it again a little later, as somebody else."""
        names = [name for name in self._nodes if name != "reader"]
        name = names[int(dice * len(names))]
        if self._nodes[name].process is not None:
            self._sometimes.reached("client died")
            self._nodes[name].kill()
            self._world.clock.call_later(_CLIENT_RESTART_S, lambda: self._start(name))

    async def finish(self) -> None:
        """Let all end their work; return when they have."""
        self._should_stop = True
        for client in (*self._writers.values(), *self.readers):
            client.should_stop = True
        for name in list(self._nodes):
            if name.startswith("p"):
                await self._ended(name)
        await self._ended("reader")

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


@final
class _Life:
    def __init__(self, world: World, plan: Plan) -> None:
        self.sometimes = Sometimes()
        self.rules: dict[str, ProducerRules] = {}
        self.book = Book(_checkers(self.rules), world.clock.current_time)
        self._world = world
        self._plan = plan
        self.host = BrokerHost(world, plan, self.book, self.sometimes)
        self._clients = _Clients(world, plan, self.book, self.sometimes)
        self._clients.rules = self.rules

    async def live(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.host.run)
            topic_id = await self._create_topic()
            nemesis = Nemesis(self._world, self.host, self.book, self.sometimes, self._clients.kill)
            self._clients.begin(topic_id)
            nemesis.begin(self._plan)
            await trio.sleep(self._plan.seconds)
            nemesis.end()
            self.host.kill()
            try:
                with trio.fail_after(_PATIENCE_S):
                    await self._clients.finish()
                    self.host.cut_power()
                    last = self._clients.reader("last reader")
                    last.should_stop = True
                    await self._world.add_node("last reader").start(last.run).ended.wait()
            except trio.TooSlowError:
                raise ViolationError("Liveness", "the tail does not come to its end") from None
            nursery.cancel_scope.cancel()
        self.book.ended(last.logs)
        if self._plan.is_durable:
            self._check_history(last)

    async def _create_topic(self) -> bytes:
        ids: list[bytes] = []

        async def create(connection: RpcConnection) -> None:
            request = CreateTopicRequest(
                TOPIC, self._plan.partition_count, self._plan.topic_settings
            )
            ids.append((await connection.ask(api.CREATE_TOPIC, request)).topic_id)

        async def administrate(process: Process) -> None:
            await with_connection(process, create)

        await self._world.add_node("admin").start(administrate).ended.wait()
        return ids[0]

    def _check_history(self, last: RawReader) -> None:
        history = self._clients.history
        for partition, log in last.logs.items():
            values = [(offset, value.decode()) for offset, value in sorted(log.values.items())]
            history.append(Operation("last reader", Outcome.OK, [Poll({str(partition): values})]))
        starts = {str(partition): log.log_start_offset for partition, log in last.logs.items()}
        found = HistoryChecker(history, log_starts=starts).check()
        is_idempotent = all(rules.is_idempotent for rules in self.rules.values())
        has_rot = any(log.damage for log in last.logs.values())
        for anomaly, cases in unexpected(
            found, is_idempotent=is_idempotent, uses_subscribe=False
        ).items():
            if not has_rot:
                raise ViolationError(f"History.{anomaly.name}", f"{len(cases)}: {cases[0]}")


def _checkers(rules: dict[str, ProducerRules]) -> Sequence[Checker]:
    return [
        NothingPhantom(),
        StableOffsets(),
        NoDuplicates(rules),
        Contiguous(),
        BelowHighWatermark(),
        HighWatermarkRises(),
        DurableStays(),
        CleanStopKeeps(),
        LogStartRises(),
        DamageIsReal(),
        RotIsFound(),
        HonestStatus(),
        AcknowledgedStays(),
        ProducerOrder(rules),
    ]


def live(
    plan: Plan, *, show: Callable[[str], None] | None = None, shows_steps: bool = False
) -> LifeReport:
    """Live one life and return what there is to say of it; the same for the same plan."""
    events_max = int(_EVENTS_PER_S_MAX * (plan.seconds + _PATIENCE_S))
    simulation = Simulation(plan.seed, show=show, shows_steps=shows_steps, events_max=events_max)
    lives: list[_Life] = []

    async def main(world: World) -> None:
        lives.append(_Life(world, plan))
        await lives[0].live()

    checker, problem = None, ""
    try:
        simulation.run(main)
    except ViolationError as error:
        checker, problem = error.checker, str(error)
    except EventBudgetError as error:
        checker, problem = "EventBudget", str(error)
    except DeadlockError as error:
        checker, problem = "Liveness", str(error)
    except Exception as error:  # noqa: BLE001  (a defect of whatever raised it)
        checker, problem = type(error).__name__, "".join(format_exception(error)[-6:])
    life = lives[0]
    return LifeReport(
        plan=plan,
        checker=checker,
        problem=problem,
        sometimes=dict(life.sometimes.counts),
        counts={
            "events": simulation.clock.event_count,
            "crashes": life.host.crash_count,
            "acknowledged": life.book.acknowledged_count,
            "read": life.book.read_count,
        },
        simulated_s=simulation.clock.now,
        fingerprint=simulation.trace.fingerprint(),
    )
