"""Random runs of a cluster's metadata: numbers that hypothesis draws become commands.

Late, repeated and outdated commands, and commands about deleted topics, are as frequent as valid
ones. `Cluster.do` checks all invariants.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from hypothesis import strategies as st
from msgspec.structs import replace

from tests.coordinator.metadata.clusters import NOW_MS, Cluster
from tests.simulation.metadata.invariants import all_partitions, check_same
from tidelog.coordinator.metadata.catalog import AlterTopic, DeleteTopic, TakeProducerIds
from tidelog.coordinator.metadata.commands import (
    AcknowledgeEvents,
    AddPartitions,
    AlterClusterConfig,
    AlterPartitions,
    AlterQueue,
    BeginShutdown,
    Command,
    CommandOutcome,
    CreateQueue,
    CreateReplicatedTopic,
    DeleteQueue,
    DrainBroker,
    ElectLeaders,
    ElectRecovered,
    FailedReplica,
    FenceBroker,
    InSyncReplica,
    ProposedIsr,
    Reassignment,
    ReassignReplicas,
    RefusedTruncation,
    RefuseTruncation,
    RegisterBroker,
    RemoveFromIsr,
    ReportedLog,
    ReportedLoss,
    ReportLogEnds,
    ReportLoss,
    SetFeatureLevel,
    UnfenceBroker,
    UnregisterBroker,
)
from tidelog.coordinator.metadata.records import (
    BrokerRegistration,
    LogEnd,
    PartitionRegistration,
)
from tidelog.coordinator.metadata.state_machine import MetadataStateMachine
from tidelog.isr.durability import Durability
from tidelog.wire.errors import BrokerError
from tidelog.wire.messages.features import OWN_LEVELS

NODES = 5
NAMES = ("a", "b", "c")
QUEUES = ("a", "p", "q", "r")
"""Names of queues; one is also the name of a topic."""


@dataclass(frozen=True, slots=True)
class Move:
    """The next command, before its arguments are known."""

    kind: str
    a: int
    b: int
    c: int


class Run:
    """A cluster, and a minimal model of its topics."""

    def __init__(self) -> None:
        """Begin with three live brokers and a topic."""
        self.cluster = Cluster()
        self.cluster.supported_levels = OWN_LEVELS
        for node_id in (1, 2, 3):
            self.cluster.start(node_id)
        self.given: list[Command] = []
        self.topics: dict[str, bytes] = {}
        self.queues: dict[str, bytes] = {}
        self.used_ids: set[bytes] = set()
        self._left: tuple[MetadataStateMachine, bytes] | None = None
        """The machine that was copied last, and its snapshot of then."""
        self.go(Move("create", 0, 2, 2))

    def go(self, move: Move) -> None:
        """Make one move."""
        if move.kind == "restore":
            self.cluster.follower = MetadataStateMachine.from_snapshot(
                self.cluster.machine.snapshot()
            )
            check_same(self.cluster.follower.state, self.cluster.state)
            self._go_on_with_a_copy()
            return
        command = KINDS[move.kind](self, move)
        if command is None:
            return
        here = self._outcome(self.cluster.machine, command)
        assert self._outcome(self.cluster.follower, command) == here, "a follower would decide so"
        self._check_identity(command, here)
        before = dict(self.cluster.state.brokers)
        self.given.append(command)
        try:
            self.cluster.do(command)
        except BrokerError:
            return
        if isinstance(command, RegisterBroker) and command.node_id in before:
            self._check_restart(command, before[command.node_id])
        if not isinstance(command, TakeProducerIds):
            again = self._outcome(self.cluster.machine, command)
            assert not isinstance(again, CommandOutcome) or again.records == [], (
                "it has a second effect"
            )
        self._note(command)

    def check_topics(self) -> None:
        """Compare with the model."""
        catalog = self.cluster.state.catalog
        assert {topic.name: topic.topic_id for topic in catalog.record_topics} == self.topics
        assert {each.queue_name: each.topic_id for each in catalog.journals} == self.queues
        assert all(catalog.knows(topic_id) for topic_id in self.used_ids)
        there = {topic_id for topic_id, _ in all_partitions(self.cluster.state)}
        assert there == {*self.topics.values(), *self.queues.values()}

    def _check_identity(self, command: Command, outcome: CommandOutcome | str) -> None:
        """Check that only the process that registered last is accepted."""
        if not isinstance(outcome, CommandOutcome) or not outcome.records:
            return
        brokers = self.cluster.state.brokers
        if isinstance(command, AlterPartitions):
            for change in command.changes:
                partition = self.cluster.state.partition(change.topic_id, change.partition)
                assert partition is not None
                assert partition.partition_epoch == change.partition_epoch
                for replica in change.in_sync_replicas:
                    assert brokers[replica.node_id].broker_epoch == replica.broker_epoch
        if isinstance(
            command,
            UnfenceBroker
            | FenceBroker
            | BeginShutdown
            | AlterPartitions
            | RemoveFromIsr
            | RefuseTruncation,
        ):
            assert brokers[command.node_id].broker_epoch == command.broker_epoch

    def _check_restart(self, command: RegisterBroker, previous: BrokerRegistration) -> None:
        """Check that a replica which may have lost records is neither in sync nor eligible.

        The only replica in memory is an exception.
        """
        if previous.incarnation_id == command.incarnation_id:
            return
        for (topic_id, _), partition in all_partitions(self.cluster.state).items():
            topic = self.cluster.state.catalog.topic_by_id(topic_id)
            assert topic is not None
            in_memory = topic.config.durability is Durability.REPLICATED
            is_one_of_many = partition.replication_factor > 1
            assert command.node_id not in partition.in_sync_replicas
            assert command.node_id not in partition.offline_replicas
            if previous.disk_id != command.disk_id or (
                command.clean_stop_epoch != previous.broker_epoch and in_memory and is_one_of_many
            ):
                assert command.node_id not in partition.eligible_leader_replicas

    def _go_on_with_a_copy(self) -> None:
        """Replace the machine by a copy; the one before it must stay as it is."""
        if self._left is not None:
            machine, snapshot = self._left
            assert machine.snapshot() == snapshot, "a change of the copy changed the original"
        self._left = (self.cluster.machine, self.cluster.machine.snapshot())
        self.cluster.machine = MetadataStateMachine(self.cluster.state.copy())
        check_same(self.cluster.machine.state, self.cluster.follower.state)

    def _outcome(self, machine: MetadataStateMachine, command: Command) -> CommandOutcome | str:
        try:
            return machine.handle(command, now_ms=NOW_MS)
        except BrokerError as error:
            return str(error)

    def _note(self, command: Command) -> None:
        if isinstance(command, CreateReplicatedTopic) and command.topic_id not in self.used_ids:
            assert command.name not in self.topics
            self.topics[command.name] = command.topic_id
            self.used_ids.add(command.topic_id)
        if isinstance(command, DeleteTopic):
            topic_id = self.topics.get(command.name)
            if command.topic_id in {None, topic_id}:
                del self.topics[command.name]

        if isinstance(command, CreateQueue) and command.queue_id not in self.used_ids:
            self._note_queue(command)
        if isinstance(command, DeleteQueue):
            queue_id = self.queues.get(command.name)
            if queue_id is not None and command.queue_id in {None, queue_id}:
                del self.queues[command.name]
                if command.with_topic:
                    there = self.cluster.state.catalog
                    for name in [name for name in self.topics if not there.has_topic(name)]:
                        del self.topics[name]

    def _note_queue(self, command: CreateQueue) -> None:
        if command.name in self.queues:
            return  # The value is unchanged.
        self.queues[command.name] = command.queue_id
        self.used_ids.add(command.queue_id)
        if command.topic not in self.topics:
            self.topics[command.topic] = command.new_topic_id
            self.used_ids.add(command.new_topic_id)

    def epoch(self, node_id: int, age: int) -> int:
        """Return an epoch of a broker, mostly the current one."""
        broker = self.cluster.state.brokers.get(node_id)
        now = 1 if broker is None else broker.broker_epoch
        return max(1, now - age // 7) if age % 4 == 0 else now

    def place(self, number: int) -> tuple[bytes, int] | None:
        """Return one of the partitions."""
        keys = list(all_partitions(self.cluster.state))
        return keys[number % len(keys)] if keys else None


def _nodes(number: int, count: int) -> list[int]:
    """Return some different brokers in some order."""
    nodes = list(range(1, NODES + 1))
    chosen: list[int] = []
    for _ in range(1 + count % 3):
        chosen.append(nodes.pop(number % len(nodes)))
        number //= 3
    return chosen


def _register(run: Run, move: Move) -> Command:
    node_id = 1 + move.a % NODES
    disk_id = f"disk-{run.cluster.draw()}" if move.b % 8 == 0 else None
    command = run.cluster.registration(node_id, disk_id=disk_id, unclean=move.c % 2 == 0)
    return replace(command, supported_levels=None) if move.a % 8 == 0 else command


def _unfence(run: Run, move: Move) -> Command:
    node_id = 1 + move.a % NODES
    return UnfenceBroker(node_id, run.epoch(node_id, move.b))


def _fence(run: Run, move: Move) -> Command:
    node_id = 1 + move.a % NODES
    return FenceBroker(node_id, run.epoch(node_id, move.b))


def _shut_down(run: Run, move: Move) -> Command:
    node_id = 1 + move.a % NODES
    return BeginShutdown(node_id, run.epoch(node_id, move.b))


def _create(run: Run, move: Move) -> Command:
    topic_id = run.cluster.draw().to_bytes(16, "big")
    overrides: dict[str, str] = {}
    if move.b % 3 == 0:
        overrides["durability"] = "replicated"
    if move.b % 5 == 0:
        overrides["min_insync_replicas"] = str(1 + move.b % 2)
    name = NAMES[move.a % len(NAMES)]
    count = 1 + move.c % 3
    if move.c % 7 == 0:
        assignment = [_nodes(move.a + number, move.b) for number in range(count)]
        return CreateReplicatedTopic(name, topic_id, count, overrides, assignment=assignment)
    factor = None if move.c % 2 == 0 else 1 + move.b % 4
    return CreateReplicatedTopic(name, topic_id, count, overrides, factor)


def _delete(run: Run, move: Move) -> Command:
    name = NAMES[move.a % len(NAMES)]
    return DeleteTopic(name, run.topics.get(name) if move.b % 2 else None)


def _grow(run: Run, move: Move) -> Command:
    name = NAMES[move.a % len(NAMES)]
    return AddPartitions(name, 1 + move.b % 5, run.topics.get(name) if move.c % 2 else None)


def _alter_topic(run: Run, move: Move) -> Command:
    del run
    name = NAMES[move.a % len(NAMES)]
    if move.b % 3 == 0:
        return AlterTopic(name, {}, ["min_insync_replicas"])
    if move.b % 3 == 1:
        return AlterTopic(name, {"min_insync_replicas": str(1 + move.c % 3)}, [])
    return AlterTopic(name, {"durability": ("fsync", "replicated")[move.c % 2]}, [])


def _alter_cluster(run: Run, move: Move) -> Command:
    if move.c % 4 == 0:
        return SetFeatureLevel(1 if move.b % 4 else move.b % 3, list(run.cluster.state.brokers))
    if move.a % 2:
        return AlterClusterConfig({}, ["min_insync_replicas"])
    return AlterClusterConfig({"min_insync_replicas": str(1 + move.b % 3)}, [])


def _create_queue(run: Run, move: Move) -> Command:
    ids = [run.cluster.draw().to_bytes(16, "big") for _ in range(2)]
    name = QUEUES[move.a % len(QUEUES)]
    topic = (*NAMES, name)[move.b % 4]
    topic_id = run.topics.get(topic) if move.c % 5 else None
    known = run.cluster.state.partitions(topic_id or b"")
    overrides: dict[str, str] = {}
    if move.c % 3 == 0:
        overrides["dead_letter_queue"] = QUEUES[move.b // 4 % len(QUEUES)]
    if move.c % 7 == 0:
        overrides["retention_ms"] = "10d"
    return CreateQueue(
        name,
        ids[0],
        bytes(32),
        ids[1],
        NOW_MS,
        topic,
        topic_id,
        [move.b % 3] * len(known),
        is_fifo=move.c % 11 == 0,
        overrides=overrides,
        partition_count=1 + move.b % 2 if move.c % 2 else None,
    )


def _alter_queue(run: Run, move: Move) -> Command:
    del run
    name = QUEUES[move.a % len(QUEUES)]
    if move.b % 3 == 0:
        return AlterQueue(name, {}, ["dead_letter_queue"])
    if move.b % 3 == 1:
        return AlterQueue(name, {"dead_letter_queue": QUEUES[move.c % len(QUEUES)]}, [])
    return AlterQueue(name, {"priority_weights": str(1 + move.c % 3)}, [])


def _delete_queue(run: Run, move: Move) -> Command:
    name = QUEUES[move.a % len(QUEUES)]
    for journal in run.cluster.state.catalog.journals:
        # Prefer a replica that delays a reassignment.
        partitions = run.cluster.state.partitions(journal.topic_id)
        if move.b % 3 and any(_is_behind(each) for each in partitions):
            name = journal.queue_name
    queue_id = run.queues.get(name) if move.b % 2 else None
    return DeleteQueue(name, queue_id, with_topic=move.c % 3 == 0, detach_sources=move.c % 2 == 0)


def _is_behind(partition: PartitionRegistration) -> bool:
    staying = {*partition.replicas} - {*partition.removing_replicas}
    return partition.is_reassigning and not staying <= {*partition.in_sync_replicas}


def _change_in_sync(run: Run, move: Move) -> Command | None:
    key = run.place(move.a)
    if key is None:
        return None
    partition = run.cluster.state.partition(*key)
    assert partition is not None
    wanted = [
        node
        for place, node in enumerate(partition.replicas)
        if node == partition.leader or move.b >> place & 1
    ]
    leader = partition.leader or partition.last_known_leader or partition.replicas[0]
    change = ProposedIsr(
        *key,
        partition.leader_epoch - (move.c % 11 == 0),
        partition.partition_epoch - (move.c % 7 == 0),
        [InSyncReplica(node, run.epoch(node, move.c)) for node in wanted],
    )
    return AlterPartitions(leader, run.epoch(leader, move.c // 5), [change])


def _copied(run: Run, move: Move) -> Command | None:
    """Bring all live replicas of a moving partition in sync, so that moves complete."""
    state = run.cluster.state
    moving = [key for key, each in all_partitions(state).items() if each.is_reassigning]
    if not moving:
        return None
    key = moving[move.a % len(moving)]
    partition = state.partition(*key)
    assert partition is not None
    leader = partition.leader or partition.replicas[0]
    change = ProposedIsr(
        *key,
        partition.leader_epoch,
        partition.partition_epoch,
        [
            InSyncReplica(node, state.brokers[node].broker_epoch)
            for node in partition.replicas
            if state.brokers[node].can_lead
        ],
    )
    return AlterPartitions(leader, run.epoch(leader, move.c), [change])


def _elect(run: Run, move: Move) -> Command | None:
    key = run.place(move.a)
    return None if key is None else ElectLeaders([key], accept_data_loss=move.b % 2 == 0)


def _reassign(run: Run, move: Move) -> Command | None:
    key = run.place(move.a)
    if key is None:
        return None
    replicas = None if move.c % 4 == 0 else _nodes(move.b, move.c)
    if replicas is not None and move.c % 3:
        replicas = [node for node in replicas if node in run.cluster.state.brokers]
    topic = run.cluster.state.catalog.topic_by_id(key[0])
    if topic is not None and move.c % 5:
        key = (topic.source_id, key[1])  # A journal is not moved alone.
    return ReassignReplicas([Reassignment(*key, replicas)])


def _remove_from_isr(run: Run, move: Move) -> Command | None:
    key = run.place(move.a)
    if key is None:
        return None
    partition = run.cluster.state.partition(*key)
    assert partition is not None
    node_id = partition.replicas[move.b % len(partition.replicas)]
    removed = FailedReplica(
        *key, move.c % 3 == 1, is_offline=move.c % 3 == 2, is_lost=move.c % 11 == 1
    )
    return RemoveFromIsr(node_id, run.epoch(node_id, move.c), [removed])


def _report_log_end(run: Run, move: Move) -> Command | None:
    """Report log ends of a broker for all partitions without a leader, or for one with a leader."""
    node_id = 1 + move.b % NODES
    end = LogEnd(move.c % 3 - 1, move.c % 7, is_whole=move.c % 5 > 0)
    logs = [
        ReportedLog(*key, partition.leader_epoch - (move.c % 11 == 1), end)
        for key, partition in all_partitions(run.cluster.state).items()
        if partition.leader is None or key == run.place(move.a)
    ]
    return ReportLogEnds(node_id, run.epoch(node_id, move.c), logs)


def _elect_recovered(run: Run, move: Move) -> Command | None:
    key = run.place(move.a)
    if key is None:
        return None
    partition = run.cluster.state.partition(*key)
    assert partition is not None
    return ElectRecovered([(*key, partition.leader_epoch - (move.c % 11 == 1))])


def _refuse_truncation(run: Run, move: Move) -> Command | None:
    key = run.place(move.a)
    if key is None:
        return None
    partition = run.cluster.state.partition(*key)
    assert partition is not None
    node_id = partition.replicas[move.b % len(partition.replicas)]
    epoch = max(partition.leader_epoch - (move.c % 5 == 1), 0)
    refused = RefusedTruncation(*key, epoch, 5, 10, 12, 1, is_whole=move.c % 7 != 1)
    return RefuseTruncation(node_id, run.epoch(node_id, move.c), [refused])


def _report_loss(run: Run, move: Move) -> Command | None:
    key = run.place(move.a)
    if key is None:
        return None
    node_id = 1 + move.b % NODES
    losses = [ReportedLoss(*key, move.c % 2, first, first + 5, "") for first in (0, move.c % 3)]
    return ReportLoss(node_id, run.epoch(node_id, move.c), losses)


def _acknowledge(run: Run, move: Move) -> Command:
    newest = run.cluster.state.events.total
    if move.c % 4 == 0:
        return AcknowledgeEvents([], newest - move.b % 3)
    return AcknowledgeEvents([move.a % (newest + 2), max(1, newest - move.b % 5)])


def _repeat(run: Run, move: Move) -> Command:
    return run.given[-1 - move.a % len(run.given)]


def _start(run: Run, move: Move) -> Command | None:
    """Restart a broker in one move, so that runs are not all about dead brokers."""
    node_id = 1 + move.a % NODES
    registration = run.cluster.registration(node_id, unclean=move.b % 2 == 0)
    run.given.append(registration)
    try:
        run.cluster.do(registration)
    except BrokerError:
        return None
    return UnfenceBroker(node_id, run.cluster.broker(node_id).broker_epoch)


def _leave(run: Run, move: Move) -> Command:
    del run
    node_id = 1 + move.a % NODES
    if move.b % 2:
        return DrainBroker(node_id, is_drained=move.c % 3 == 0)
    return UnregisterBroker(node_id)


def _take_ids(run: Run, move: Move) -> Command:
    del run, move
    return TakeProducerIds()


KINDS: dict[str, Callable[[Run, Move], Command | None]] = {
    "start": _start,
    "register": _register,
    "unfence": _unfence,
    "fence": _fence,
    "shut_down": _shut_down,
    "leave": _leave,
    "create": _create,
    "delete": _delete,
    "grow": _grow,
    "alter_topic": _alter_topic,
    "alter_cluster": _alter_cluster,
    "create_queue": _create_queue,
    "alter_queue": _alter_queue,
    "delete_queue": _delete_queue,
    "in_sync": _change_in_sync,
    "copied": _copied,
    "elect": _elect,
    "reassign": _reassign,
    "give_up": _remove_from_isr,
    "report_log_end": _report_log_end,
    "elect_recovered": _elect_recovered,
    "refuse": _refuse_truncation,
    "report_loss": _report_loss,
    "acknowledge": _acknowledge,
    "repeat": _repeat,
    "take_ids": _take_ids,
}

OFTEN = (
    "start",
    "fence",
    "report_log_end",
    "report_log_end",
    "in_sync",
    "in_sync",
    "copied",
    "create_queue",
    "reassign",
    "repeat",
)
MOVES = st.builds(
    Move,
    kind=st.sampled_from([*KINDS, *OFTEN, "restore"]),
    a=st.integers(0, 1000),
    b=st.integers(0, 1000),
    c=st.integers(0, 1000),
)
MOVE_LISTS = st.lists(MOVES, min_size=30, max_size=80)


def drawn_moves(seed: int) -> list[Move]:
    """Return a run without hypothesis, which would try to shrink a failure."""
    random = Random(seed)
    kinds = [*KINDS, *OFTEN, "restore"]
    return [
        Move(random.choice(kinds), *(random.randrange(1000) for _ in range(3))) for _ in range(80)
    ]


def run(moves: list[Move]) -> Run:
    """Make all the moves, with all the checks."""
    run = Run()
    for move in moves:
        run.go(move)
        run.check_topics()
    return run
