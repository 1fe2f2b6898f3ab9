"""One run of a cluster by a plan: brokers, clients, faults, and a tail without faults.

In the tail, within seconds, the nodes must agree on one leader, and every waiting client must get
its reply. Then the power of all machines is cut, and the findings of a last reader and of an
auditor are compared with the history.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar, final

import trio

from tests.simulation.broker.keys import Superseded
from tests.simulation.broker.plans import Fault, superseded_of
from tests.simulation.broker.readers import BACKOFF_S, values_of
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.checkers.broker_checkers import DamageIsReal
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
    Contiguous,
    NoDuplicates,
    NothingPhantom,
    ProducerOrder,
    StableOffsets,
)
from tests.simulation.checkers.run_history import (
    Checker,
    Fetched,
    FinalLog,
    ProducerRules,
    RunHistory,
    ViolationError,
)
from tests.simulation.cluster.actors import Actors, CreateActors, Host
from tests.simulation.cluster.auditor import audit
from tests.simulation.cluster.byzantine_peer import ByzantinePeer, StrangersAreRefused
from tests.simulation.cluster.clients import Clients
from tests.simulation.cluster.cluster_history import ClusterHistory, NodeChecker, Partition
from tests.simulation.cluster.consensus_checkers import (
    AppliedInOrder,
    ElectionSafety,
    LeaderCompleteness,
    OneVote,
    StateMachineSafety,
    StatesAgree,
    TermNeverFalls,
)
from tests.simulation.cluster.faults import FaultInjector
from tests.simulation.cluster.group_checkers import CommitsStay, OneOwner
from tests.simulation.cluster.loss_acceptor import LossAcceptor
from tests.simulation.cluster.machines import Machines, addresses
from tests.simulation.cluster.metadata_checkers import (
    AnswersAreCommitted,
    FencedIsSilent,
    LeadersAreAlive,
    NamesAreUnique,
    OneLeader,
)
from tests.simulation.cluster.plans import ClusterPlan
from tests.simulation.cluster.replica_difference import MayLack
from tests.simulation.cluster.replica_log import Lost
from tests.simulation.cluster.replica_witness import watching_replicas
from tests.simulation.cluster.replicas import Replicas
from tests.simulation.cluster.replication_checkers import (
    CommittedIsEverywhere,
    CommittedIsNotCut,
    HighWatermarkStays,
    JoinersAreKnown,
    JoinersHaveAll,
    LatestRises,
    LogsMatch,
    LossIsAccepted,
    ReplicaStays,
    TooFewIsSaid,
)
from tests.simulation.cluster.sometimes import PROBES
from tests.simulation.cluster.witness import witnessing
from tests.simulation.defects import no_defect_unheard
from tests.simulation.machine.broker_host import TOPIC
from tests.simulation.machine.process import Process
from tests.simulation.machine.world import Simulation, World
from tests.simulation.report import RunReport, judged
from tidelog.client.client import connect
from tidelog.client.consumer.consumer import Consumer
from tidelog.wire.errors import TidelogError

PlanType = TypeVar("PlanType", bound=ClusterPlan)

_FORMING_S = 60.0
_OF_ONE_MIND_S = 20.0
"""Seconds; an election takes a second or two, and a fenced broker may have to return."""
_IN_SYNC_S = 20.0
"""Seconds; a replica that has come back has few records to fetch."""
_PATIENCE_S = 60.0
"""Seconds for the clients, whose earlier requests may still be in flight."""
_GROUP_PATIENCE_S = 120.0
"""Seconds for members of a group: a dead member is detected after 45 seconds."""
_EVENTS_PER_S_MAX = 60_000
_MOMENT_S = 0.01


class RunSetting(NamedTuple):
    """Additional settings of other kinds of runs."""

    probes: Mapping[str, str] = PROBES
    create_actors: CreateActors | None = None


@final
class _Run:
    def __init__(
        self, world: World, plan: ClusterPlan, setting: RunSetting, *, goes_on: bool
    ) -> None:
        self.sometimes = Sometimes(setting.probes)
        self.rules: dict[str, ProducerRules] = {}
        self.superseded = superseded_of(plan, range(plan.partition_count), self.rules)
        checkers = _checkers(self.rules, self.superseded)
        self.run_history = RunHistory(checkers, world.clock.current_time, goes_on=goes_on)
        clock = world.clock
        self.cluster_history = ClusterHistory(
            _node_checkers(), clock.current_time, clock.fail, goes_on=goes_on
        )
        self.replicas = Replicas(self.cluster_history)
        self._world = world
        self._plan = plan
        self.machines = Machines(
            world,
            plan,
            self.run_history,
            cluster_history=self.cluster_history,
            sometimes=self.sometimes,
        )
        self.machines.on_truncated.append(self.replicas.truncated)
        self.replicas.page_caches.is_kept = self.machines.has_kept_cache
        self.replicas.page_caches.lost_count = self.machines.lost_caches
        self.cluster_history.on_lost.append(self._lost)
        self._void: dict[str, list[range]] = {}
        self._topic_id = b""
        self._clients = Clients(
            world,
            plan,
            self.run_history,
            cluster_history=self.cluster_history,
            sometimes=self.sometimes,
            rules=self.rules,
        )
        self._clients.growth.listeners.append(self._grown)
        self._asides: dict[str, Callable[[Fault], None]] = {}
        if any(fault.kind == "replay_frames" for fault in plan.faults):
            peer = ByzantinePeer(
                world, self.machines, self.cluster_history, sometimes=self.sometimes
            )
            self._asides["replay_frames"] = peer.schedule
        self.actors: Actors | None = None
        if setting.create_actors is not None:
            host = Host(world, self.machines, self.cluster_history, self.sometimes)
            self.actors = setting.create_actors(host)

    async def run(self) -> None:
        plan = self._plan
        async with trio.open_nursery() as nursery:
            self.machines.run(nursery)
            await self._wait_of_one_mind(_FORMING_S)
            self._topic_id = topic_id = await self._create_topic()
            if not plan.is_durable:
                acceptor = LossAcceptor(plan, self.cluster_history, self.sometimes)
                self._world.add_node("acceptor").start(acceptor.run)
            if self.actors is not None:
                await self.actors.prepare()
            fault_injector = FaultInjector(
                self._world,
                self.machines,
                self.cluster_history,
                sometimes=self.sometimes,
                clients=self._clients,
                replicas=self.replicas,
                asides=self._asides,
            )
            self._clients.begin(topic_id)
            if self.actors is not None:
                self.actors.begin(self._clients)
                fault_injector.learn(self.actors.faults(fault_injector))
            fault_injector.begin(plan)
            await trio.sleep(plan.seconds)
            fault_injector.end()
            await self._wait_of_one_mind(_OF_ONE_MIND_S)
            await self._wait_in_sync()
            await self._finish_clients()
            if self.actors is not None:
                await self.actors.finish()
            if not plan.is_durable:
                await self._stop_all()  # A clean stop syncs all records in memory.
            for machine in self.machines.all:
                machine.cut_power()
                machine.start_now()
            await self._wait_of_one_mind(_OF_ONE_MIND_S)
            logs = await self._look_at_everything()
            self.superseded.learn(logs)
            await self._compare_replicas()
            await self._look_at_batches()
            await self._dismiss_crew(logs)
            if self.actors is not None:
                await self.actors.look()
            nursery.cancel_scope.cancel()
        self.run_history.ended(logs)
        if plan.member_count:
            self._clients.members.check(logs, self.superseded)
        self._check_history(logs)

    def _grown(self, count: int) -> None:
        if self._plan.is_compacted:
            self.superseded.partitions.update(range(count))

    async def _finish_clients(self) -> None:
        with trio.move_on_after(_PATIENCE_S):
            await self._clients.finish()
            return
        raise ViolationError("Liveness", "not every client ends")

    async def _stop_all(self) -> None:
        for machine in self.machines.all:
            machine.next_down_s = _OF_ONE_MIND_S
            machine.stop()
        with trio.move_on_after(_OF_ONE_MIND_S):
            while any(machine.is_up for machine in self.machines.all):  # noqa: ASYNC110
                await trio.sleep(_MOMENT_S)
            return
        raise ViolationError("Liveness", f"not all brokers stop within {_OF_ONE_MIND_S:g} s")

    def _lost(self, lost: Lost) -> None:
        topic_id, number = lost.partition
        if topic_id == self._topic_id:
            self.sometimes.reached("lost in memory")
            self._void.setdefault(str(number), []).append(range(lost.end_offset, lost.lost_end))
            self.run_history.forgotten({number: lost.end_offset})

    async def _wait_of_one_mind(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            while not self.machines.are_of_one_mind():  # noqa: ASYNC110  (there is no event)
                await trio.sleep(0.1)
            return
        raise ViolationError("Liveness", f"the nodes do not agree within {seconds:g} s")

    async def _wait_in_sync(self) -> None:
        with trio.move_on_after(_IN_SYNC_S):
            while not self.replicas.are_in_sync():  # noqa: ASYNC110  (there is no event)
                await trio.sleep(0.1)
            return
        raise ViolationError("Liveness", f"not all replicas are in sync within {_IN_SYNC_S:g} s")

    async def _compare_replicas(self) -> None:
        await self._wait_in_sync()
        with trio.move_on_after(_IN_SYNC_S):
            while not self.replicas.are_whole():
                for machine in self.machines.all:
                    machine.open_logs()
                await trio.sleep(0.1)
            self.replicas.compare(self._may_lack())
            return
        raise ViolationError(
            "Liveness", f"not all replicas are level and undamaged within {_IN_SYNC_S:g} s"
        )

    def _may_lack(self) -> dict[Partition, MayLack]:
        """Return, by partition, which records compaction may have removed from a replica."""

        def in_partition(number: int) -> MayLack:
            return lambda offset, value: self.superseded.covers((number, offset), value)

        return {
            (self._topic_id, number): in_partition(number) for number in self.superseded.partitions
        }

    async def _dismiss_crew(self, logs: dict[int, FinalLog]) -> None:
        ends = {partition: log.high_watermark for partition, log in logs.items()}
        with trio.move_on_after(_GROUP_PATIENCE_S):
            await self._clients.dismiss(ends)
            return
        members = self._clients.members
        raise ViolationError(
            "Liveness",
            f"a group is at {members.committed(self.cluster_history.groups, ends)},"
            f" and records go to {ends}",
        )

    async def _create_topic(self) -> bytes:
        ids: list[bytes] = []

        async def create(process: Process) -> None:
            async with connect(addresses(self._plan), env=process.env) as client:
                if self._plan.cluster_settings:
                    await client.admin.alter_cluster(set=self._plan.cluster_settings)
                try:
                    reply = await client.admin.create_topic(
                        TOPIC,
                        self._plan.partition_count,
                        replication_factor=self._plan.replication_factor,
                        config=self._plan.topic_settings,
                    )
                except TidelogError as error:
                    raise ViolationError(
                        "Liveness", f"no fault is active, but {TOPIC} is not created: {error}"
                    ) from error
                self.cluster_history.told_created(TOPIC, reply.topic_id)
                ids.append(reply.topic_id)

        await self._world.add_node("founder").start(create).ended.wait()
        return ids[0]

    async def _look_at_everything(self) -> dict[int, FinalLog]:
        logs: dict[int, FinalLog] = {}

        async def read(process: Process) -> None:
            while True:
                try:
                    async with (
                        connect(addresses(self._plan), env=process.env) as client,
                        client.consumer(TOPIC, auto_offset_reset="earliest") as consumer,
                    ):
                        logs.update(await _read_all(consumer, self.run_history))
                        break
                except TidelogError:
                    await trio.sleep(BACKOFF_S)
            await audit(process, self._plan, self.cluster_history.image.state)

        process = self._world.add_node("auditor").start(read)
        with trio.move_on_after(_PATIENCE_S):
            await process.ended.wait()
            # Members of groups still work: an entry may be in flight to some nodes.
            while not self.cluster_history.are_level():  # noqa: ASYNC110  (there is no event)
                await trio.sleep(_MOMENT_S)
            self.cluster_history.ended()
            return logs
        raise ViolationError("Liveness", "the last reader does not reach the end")

    async def _look_at_batches(self) -> None:
        if self._clients.transaction_client is None:
            return
        process = self._world.add_node("batch reader").start(self._clients.transaction_client.check)
        with trio.move_on_after(_PATIENCE_S):
            await process.ended.wait()
            return
        raise ViolationError("Liveness", "the reader of transactions does not reach the end")

    def _check_history(self, logs: dict[int, FinalLog]) -> None:
        history = self._clients.history
        for number, log in logs.items():
            values = [(offset, value.decode()) for offset, value in sorted(log.values.items())]
            history.append(Operation("last reader", Outcome.OK, [Poll({str(number): values})]))
            if number in self.superseded.partitions:
                # The replica that a consumer read may have been compacted further than the one that
                # was read last.
                superseded = {
                    offset
                    for offset, value in log.values.items()
                    if self.superseded.covers((number, offset), value)
                }
                gone = self.run_history.checker(OnlySupersededGoes).gone[number] | superseded
                void = [range(log.log_start_offset), *ranges_of(gone)]
                self._void.setdefault(str(number), []).extend(void)
        found = HistoryChecker(
            history,
            log_starts={str(number): log.log_start_offset for number, log in logs.items()},
            may_repeat={name for name, rules in self.rules.items() if rules.may_repeat},
            void=self._void,
            unknown_below={},
        ).check()
        for anomaly, cases in unexpected(found, uses_subscribe=False).items():
            raise ViolationError(f"History.{anomaly.name}", f"{len(cases)}: {cases[0]}")


async def _read_all(consumer: Consumer, run_history: RunHistory) -> dict[int, FinalLog]:
    """Add all records to the run history, and return them."""
    asked_at = trio.current_time()
    starts, ends = await consumer.beginning_offsets(), await consumer.end_offsets()
    logs = {
        at.partition: FinalLog(log_start_offset=start, high_watermark=ends[at])
        for at, start in starts.items()
    }
    async for batch in consumer.batches(ends):
        log = logs[batch.partition]
        records = values_of(batch)
        log.values.update(records)
        run_history.fetched(
            Fetched(
                "last reader",
                batch.partition,
                records[0][0] if records else batch.next_offset,
                batch.next_offset,
                records,
                log.high_watermark,
                log.log_start_offset,
                asked_at,
            )
        )
    return logs


def _checkers(rules: dict[str, ProducerRules], superseded: Superseded) -> Sequence[Checker]:
    return [
        NothingPhantom(),
        StableOffsets(),
        NoDuplicates(rules),
        Contiguous(superseded),
        OnlySupersededGoes(superseded, is_alone=False),
        DamageIsReal(),
        AcknowledgedStays(superseded),
        ConsumersReadAll(superseded),
        ProducerOrder(rules, superseded),
    ]


def _node_checkers() -> Sequence[NodeChecker]:
    return [
        ElectionSafety(),
        LeaderCompleteness(),
        OneVote(),
        StateMachineSafety(),
        AppliedInOrder(),
        TermNeverFalls(),
        StatesAgree(),
        AnswersAreCommitted(),
        NamesAreUnique(),
        LeadersAreAlive(),
        FencedIsSilent(),
        OneOwner(),
        CommitsStay(),
        OneLeader(),
        CommittedIsEverywhere(),
        CommittedIsNotCut(),
        JoinersAreKnown(),
        JoinersHaveAll(),
        LogsMatch(),
        HighWatermarkStays(),
        ReplicaStays(),
        LossIsAccepted(),
        LatestRises(),
        TooFewIsSaid(),
        StrangersAreRefused(),
    ]


def run(
    plan: PlanType,
    *,
    show: Callable[[str], None] | None = None,
    shows_steps: bool = False,
    goes_on: bool = False,
    setting: RunSetting = RunSetting(),  # noqa: B008  (it never changes)
) -> RunReport[PlanType]:
    """Execute one run and return its report; the same plan gives the same report.

    Args:
        plan: The plan of the run.
        show: Receives a line for each event.
        shows_steps: Whether these lines include the steps of tasks.
        goes_on: Whether the run continues after a violation, so that other checkers can object.
        setting: Additional settings of another kind of run.
    """
    simulation = Simulation(
        plan.seed, show=show, shows_steps=shows_steps, events_per_s_max=_EVENTS_PER_S_MAX
    )
    runs: list[_Run] = []

    async def main(world: World) -> None:
        run = _Run(world, plan, setting, goes_on=goes_on)
        runs.append(run)
        with (
            witnessing(run.cluster_history),
            watching_replicas(run.replicas),
            no_defect_unheard(world.clock.fail),
        ):
            await run.run()

    checker, problem = judged(lambda: simulation.run(main))
    run = runs[0]
    objections = [*run.cluster_history.objections.values(), *run.run_history.objections.values()]
    if run.actors is not None:
        objections += run.actors.objections.values()
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
            "crashes": run.machines.crash_count,
            "entries": run.cluster_history.end_index,
            "acknowledged": run.run_history.acknowledged_count,
            "read": run.run_history.read_count,
            **({} if run.actors is None else run.actors.counts),
        },
        simulated_s=simulation.clock.now,
        fingerprint=simulation.trace.fingerprint(),
        objectors=list(dict.fromkeys(objectors)),
    )
