"""One run by a plan: a broker, its clients, the faults, and a tail without faults.

In the tail, every producer must get one more record acknowledged and every reader must reach the
end, in bounded time. Then the power is cut once more, and the records that the last reader finds
are compared with the run history.
"""

from collections.abc import Callable, Sequence
from typing import final

import trio

from tests.simulation.broker.clients import Clients
from tests.simulation.broker.faults import FaultInjector
from tests.simulation.broker.keys import Superseded
from tests.simulation.broker.plans import Plan, superseded_of
from tests.simulation.broker.readers import RawReader, with_connection
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.broker.time_lookup_client import TimeLookupClient
from tests.simulation.checkers.admin_checkers import (
    DeletedStays,
    PartitionsStay,
    SettingsStay,
    TopicsStay,
)
from tests.simulation.checkers.broker_checkers import (
    CleanStopKeeps,
    CorruptionIsFound,
    DamageIsReal,
    DurableStays,
    HonestStatus,
    LogStartRises,
)
from tests.simulation.checkers.compaction_checkers import OnlySupersededGoes, ranges_of
from tests.simulation.checkers.consumer_checkers import ConsumersReadAll
from tests.simulation.checkers.history import (
    HistoryChecker,
    Operation,
    Outcome,
    Poll,
    unexpected,
)
from tests.simulation.checkers.log_checkers import (
    AcknowledgedStays,
    BelowHighWatermark,
    Contiguous,
    HighWatermarkRises,
    NoDuplicates,
    NothingPhantom,
    NoTrespass,
    ProducerOrder,
    StableOffsets,
    TimeIsFound,
)
from tests.simulation.checkers.loss_checkers import LossIsBounded
from tests.simulation.checkers.run_history import (
    Checker,
    FinalLog,
    ProducerRules,
    RunHistory,
    TopicChange,
    ViolationError,
)
from tests.simulation.machine.broker_host import TOPIC, BrokerHost
from tests.simulation.machine.process import Process
from tests.simulation.machine.world import Simulation, World
from tests.simulation.report import RunReport, judged
from tidelog.wire.messages.topics import CreateTopicRequest, DescribeTopicsRequest, TopicDescription
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection

_PATIENCE_S = 20.0
_SLOW_PATIENCE_S = 60.0
_FEW_BYTES = 1024
_EVENTS_PER_S_MAX = 20_000
"""Maximum events per second; the busiest second of 60 runs had 7,213, and half of the runs had
no second above 1,242."""


@final
class _Run:
    def __init__(self, world: World, plan: Plan, *, goes_on: bool) -> None:
        self.sometimes = Sometimes()
        self.rules: dict[str, ProducerRules] = {}
        self.superseded = superseded_of(plan, range(plan.partition_count), self.rules)
        checkers = _checkers(plan, self.rules, self.superseded)
        self.run_history = RunHistory(checkers, world.clock.current_time, goes_on=goes_on)
        self._world = world
        self._plan = plan
        self.host = BrokerHost(world, plan, self.run_history, sometimes=self.sometimes)
        self._clients = Clients(
            world, plan, self.run_history, sometimes=self.sometimes, rules=self.rules
        )
        self._clients.growth.listeners.append(self._grown)
        self._other_logs: dict[int, FinalLog] = {}

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.host.run)
            topic_id = await self._create_topic()
            fault_injector = FaultInjector(
                self._world,
                self.host,
                self.run_history,
                sometimes=self.sometimes,
                clients=self._clients,
            )
            self._clients.begin(topic_id)
            fault_injector.begin(self._plan)
            await trio.sleep(self._plan.seconds)
            fault_injector.end()
            if self._plan.is_killed_at_end:
                self.host.kill()
            try:
                with trio.fail_after(_patience_s(self._plan)):
                    await self._clients.finish()
                    self.host.cut_power()
                    last = await self._read_everything()
                    if not any(log.damage for log in last.logs.values()):
                        time_lookup = TimeLookupClient(
                            self.run_history, is_compacted=self._plan.is_compacted
                        )
                        await (
                            self._world.add_node("time-lookup").start(time_lookup.run).ended.wait()
                        )
                    await self._world.add_node("auditor").start(self._audit).ended.wait()
            except trio.TooSlowError:
                raise ViolationError("Liveness", "the tail does not end") from None
            nursery.cancel_scope.cancel()
        self.superseded.learn(last.logs)
        self.run_history.ended({**last.logs, **self._other_logs})
        self._check_history(last)

    async def _read_everything(self) -> RawReader:
        """Return a reader that has read everything, without a compaction round meanwhile."""
        node = self._world.add_node("last reader")
        known: dict[int, dict[int, bytes]] | None = None
        while True:
            last = self._clients.reader("last reader", is_older=self._plan.reading.ends_older)
            last.should_stop = True
            await node.start(last.run).ended.wait()
            found = {number: log.values for number, log in last.logs.items()}
            if found == known or not self._plan.is_compacted:
                return last
            known = found

    def _grown(self, count: int) -> None:
        if self._plan.is_compacted:
            self.superseded.partitions.update(range(count))

    async def _create_topic(self) -> bytes:
        ids: list[bytes] = []

        async def create(connection: RpcConnection) -> None:
            request = CreateTopicRequest(
                TOPIC, self._plan.partition_count, self._plan.topic_settings
            )
            change = TopicChange(TOPIC, is_creation=True, asked_at=trio.current_time())
            self.run_history.topic_changing(change)
            ids.append((await connection.ask(api.CREATE_TOPIC, request)).topic_id)
            self.run_history.topic_changed(change, ids[0])

        async def administrate(process: Process) -> None:
            await with_connection(process, create)

        await self._world.add_node("founder").start(administrate).ended.wait()
        return ids[0]

    async def _audit(self, process: Process) -> None:
        """Check which topics exist at the end, and the contents of the churned topics."""
        topics: list[TopicDescription] = []

        async def look(connection: RpcConnection) -> None:
            asked_at = trio.current_time()
            reply = await connection.ask(api.DESCRIBE_TOPICS, DescribeTopicsRequest(None))
            topics[:] = reply.topics
            self.run_history.topics_seen({topic.name: topic.topic_id for topic in topics}, asked_at)

        await with_connection(process, look)
        for topic in topics:
            if topic.name == TOPIC:
                self.run_history.settings_seen(topic.config, trio.current_time())
                self._clients.growth.seen(len(topic.partitions), trio.current_time())
                continue
            reader = RawReader(
                process.name,
                self.run_history,
                self.sometimes,
                topic_id=topic.topic_id,
                partition_count=len(topic.partitions),
            )
            reader.should_stop = True
            await reader.run(process)
            self._other_logs |= reader.logs
        known = {f"{topic.name}.{topic.topic_id.hex()}" for topic in topics}
        stored = self.host.node.disk.list_directory("topics")
        if known != set(stored):
            raise ViolationError("TopicsStay", f"there are {known} and on disk {stored}")

    def _check_history(self, last: RawReader) -> None:
        history = self._clients.history
        void = {str(number): list(lost) for number, lost in self.host.lost.items()}
        for number, log in last.logs.items():
            key = str(number)
            values = [(offset, value.decode()) for offset, value in sorted(log.values.items())]
            history.append(Operation("last reader", Outcome.OK, [Poll({key: values})]))
            damaged = (range(damage.offset, damage.next_offset) for damage in log.damage)
            void.setdefault(key, []).extend(damaged)
            if number in self.superseded.partitions:
                # Compaction may have removed records below the log start before they were deleted.
                gone = self.run_history.checker(OnlySupersededGoes).gone[number]
                void[key] += [range(log.log_start_offset), *ranges_of(gone)]
        forgotten = self.run_history.checker(NoDuplicates).unknown_below
        unknown_below = {str(number): end for number, end in forgotten.items()}
        found = HistoryChecker(
            history,
            log_starts={str(number): log.log_start_offset for number, log in last.logs.items()},
            may_repeat={name for name, rules in self.rules.items() if rules.may_repeat},
            void=void,
            unknown_below=unknown_below,
        ).check()
        for anomaly, cases in unexpected(found, uses_subscribe=False).items():
            raise ViolationError(f"History.{anomaly.name}", f"{len(cases)}: {cases[0]}")


def _checkers(
    plan: Plan, rules: dict[str, ProducerRules], superseded: Superseded
) -> Sequence[Checker]:
    return [
        NothingPhantom(),
        NoTrespass(),
        StableOffsets(),
        TimeIsFound(),
        NoDuplicates(rules),
        Contiguous(superseded),
        OnlySupersededGoes(superseded),
        BelowHighWatermark(),
        HighWatermarkRises(),
        DurableStays(),
        CleanStopKeeps(),
        LogStartRises(),
        DeletedStays(has_retention=plan.has_retention),
        SettingsStay(),
        TopicsStay(),
        PartitionsStay(),
        DamageIsReal(),
        CorruptionIsFound(),
        HonestStatus(),
        AcknowledgedStays(superseded),
        LossIsBounded(plan.broker_settings["log_flush_interval_ms"] / 1000),
        ConsumersReadAll(superseded),
        ProducerOrder(rules, superseded),
    ]


def _patience_s(plan: Plan) -> float:
    """Return the maximum duration of the tail in seconds.

    A reader that fetches batch by batch, and was killed at the last moment, needs longer.
    """
    reading = plan.reading
    fewest = min(reading.raw_fetch_bytes, reading.max_partition_fetch_bytes, reading.prefetch_bytes)
    return _SLOW_PATIENCE_S if fewest < _FEW_BYTES else _PATIENCE_S


def run(
    plan: Plan,
    *,
    show: Callable[[str], None] | None = None,
    shows_steps: bool = False,
    goes_on: bool = False,
) -> RunReport[Plan]:
    """Execute one run and return its report; the same plan gives the same report.

    Args:
        plan: The plan of the run.
        show: Receives a line for each event.
        shows_steps: Whether these lines include the steps of tasks.
        goes_on: Whether the run continues after a violation, so that other checkers can object.
    """
    simulation = Simulation(
        plan.seed, show=show, shows_steps=shows_steps, events_per_s_max=_EVENTS_PER_S_MAX
    )
    runs: list[_Run] = []

    async def main(world: World) -> None:
        runs.append(_Run(world, plan, goes_on=goes_on))
        await runs[0].run()

    checker, problem = judged(lambda: simulation.run(main))
    run = runs[0]
    objections = list(run.run_history.objections.values())
    objectors = [each.checker for each in objections] + ([checker] if checker else [])
    if objections:
        checker, problem = objections[0].checker, str(objections[0])
    return RunReport(
        plan=plan,
        checker=checker,
        problem=problem,
        sometimes=dict(run.sometimes.counts),
        counts={
            "events": simulation.clock.event_count,
            "crashes": run.host.crash_count,
            "acknowledged": run.run_history.acknowledged_count,
            "read": run.run_history.read_count,
        },
        simulated_s=simulation.clock.now,
        fingerprint=simulation.trace.fingerprint(),
        objectors=list(dict.fromkeys(objectors)),
    )
