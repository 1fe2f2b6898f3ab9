"""Tail faults: one disk of a full outage loses the end of logs, or goes back to an earlier copy.

Nothing on a disk needs to show that its last records are gone: recovery takes them for a torn tail.
So these faults strike replicas that the cluster relies on, while another one that it relies on is
intact, and mostly the damaged node comes back first. No acknowledged record may be lost.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple, Protocol, final

from tests.simulation.broker.bit_rot import StoredBatch, intact_batches
from tests.simulation.broker.plans import Fault
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.cluster.cluster_history import ClusterHistory
from tests.simulation.cluster.machines import Machine, Machines
from tests.simulation.cluster.replica_log import Partition, ReplicaLog
from tests.simulation.machine.faulty_disk import FaultyDisk
from tests.simulation.machine.process import Process
from tidelog.broker.partitions.data_directory import NODE_NAME, NodeIdentity
from tidelog.coordinator.metadata.records import (
    BrokerChanged,
    BrokerRegistration,
    PartitionChanges,
    PartitionRegistration,
)
from tidelog.logstore.checkpoint import read_small_file
from tidelog.logstore.segments.segment import LOG_SUFFIX, base_offset_of

KINDS: Final = ("bit", "bytes", "batches", "zeros")
_REPLICA: Final = re.compile(r"topics/.*\.([0-9a-f]{32})/([0-9]+)")
_LOOK_S = 0.25
_IDLE_LOOKS_MIN = 14
"""Looks without a change and without a slow disk after which a log must have a checkpoint."""
_IS_IDLE = 0.5
_IDLE_LOOKS: Final = 60
_TWO_NODES = 0.6
_ALL_INTACT = 3
"""Intact replicas that the cluster relies on where two others are damaged."""
_ALL_PARTITIONS = 0.5
_DAMAGED_FIRST = 0.7
_POWER_CUTS = 0.6
_SOON_S = 0.1
_LATE_S: Final = (1.0, 4.0)
_BYTES_MAX = 400
_BACK_LOOKS: Final = 60
_OUTAGE_ON_RETURN = 0.7


class Injector(Protocol):
    """Faults of any machine; see `tests.simulation.cluster.faults.FaultInjector`."""

    has_damaged: bool
    """Whether a disk was damaged."""

    def later(self, seconds: float, heal: Callable[[], None]) -> None:
        """Heal after a delay, and at the end in any case, but once."""
        ...

    def is_hindered(self, machine: Machine) -> bool:
        """Return whether a process or its disk is slower than without faults."""
        ...


class _Tail(NamedTuple):
    """The newest segment of a replica, with its intact batches."""

    node_id: int
    partition: Partition
    path: str
    batches: Sequence[StoredBatch]


_Logs = Mapping[Partition, ReplicaLog]


@final
class _IdleWatch:
    """Watches the logs of one node for some that have not changed for a while."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._process: Process | None = None
        self._since: dict[Partition, tuple[ReplicaLog, int]] = {}
        """By partition: the log, and the number of looks since which it is the same."""

    def look(self, logs: _Logs) -> None:
        """Compare the logs, none if the node is hindered, with those of the last look."""
        process = self.machine.node.process
        if process is None or process is not self._process:
            self._since.clear()
        self._process = process
        known, self._since = self._since, {}
        for key, log in logs.items():
            before, count = known.get(key, (log, 0))
            self._since[key] = (log, count + 1 if before == log else 0)

    def idle(self) -> _Logs:
        """Return the logs whose end a checkpoint proves by now."""
        return {key: log for key, (log, count) in self._since.items() if count > _IDLE_LOOKS_MIN}


@final
class TailFaults:
    """Injects tail faults."""

    def __init__(
        self,
        injector: Injector,
        machines: Machines,
        cluster_history: ClusterHistory,
        *,
        sometimes: Sometimes,
        settled_logs: Callable[[int], _Logs],
    ) -> None:
        """Strike by means of `injector`; see `Replicas.settled_logs`."""
        self._injector = injector
        self._machines = machines
        self._cluster_history = cluster_history
        self._sometimes = sometimes
        self._victims: dict[int, int] = {}
        """Nodes with a damaged end, and their broker epochs then; any other damage is for good."""
        self._written: dict[int, list[tuple[int, int]]] = {}
        """By node: epochs known to be in its directory, with the index of the entry."""
        self._leaderless: dict[Partition, PartitionRegistration] = {}
        self._is_over = False
        cluster_history.on_committed.append(self._committed)
        self._settled_logs = settled_logs
        self.effects: Final[Mapping[str, Callable[[Fault], None]]] = {
            "tail_damage": self._tail_damage,
            "directory_back": self._directory_back,
        }
        """Injector of each kind."""

    def end(self) -> None:
        """Cancel all pending faults."""
        self._is_over = True

    # Damage at the end of logs.

    def _tail_damage(self, fault: Fault) -> None:
        random = Random(fault.dice)
        if random.random() < _IS_IDLE:
            self._wait_until_idle(random)
        else:
            self._strike(random.choice(self._machines.all), random, {})

    def _wait_until_idle(self, random: Random) -> None:
        """Strike when a log of any node is idle for so long that its end is proven."""
        watches = [_IdleWatch(machine) for machine in self._machines.all]
        looks_left = _IDLE_LOOKS

        def look() -> None:
            nonlocal looks_left
            looks_left -= 1
            if self._is_over:
                return
            for watch in watches:
                node_id = watch.machine.node_id
                is_hindered = self._injector.is_hindered(watch.machine)
                watch.look({} if is_hindered else self._settled_logs(node_id))
            idle = [watch for watch in watches if watch.idle()]
            if idle and self._may_damage():
                watch = random.choice(idle)
                self._strike(watch.machine, random, watch.idle())
            elif looks_left:
                self._injector.later(_LOOK_S, look)
            else:
                self._strike(random.choice(self._machines.all), random, {})

        look()

    def _strike(self, first: Machine, random: Random, idle: _Logs) -> None:
        """End all processes at once, and damage the tails of one disk, or of two."""
        if self._is_over or not self._may_damage():
            return
        victims = [first]
        if len(self._machines.all) >= _ALL_INTACT + 2 and random.random() < _TWO_NODES:
            victims.append(
                random.choice([each for each in self._machines.all if each is not first])
            )
        relied_on = {key: {*each.in_sync_or_eligible} for key, each in self._partitions().items()}
        self._fall(victims, random)
        tails = [
            tail
            for machine in victims
            for tail in _tails(machine)
            if tail.partition in relied_on
            and _is_bearable(machine.node_id, victims, relied_on[tail.partition])
        ]
        counted_on = [tail for tail in tails if tail.node_id in relied_on[tail.partition]]
        if not counted_on:
            return
        if random.random() >= _ALL_PARTITIONS:
            chosen = random.choice(
                [tail for tail in counted_on if tail.partition in idle] or counted_on
            ).partition
            tails = [tail for tail in tails if tail.partition == chosen]
        elif random.random() < _ALL_PARTITIONS and len(tails) > 1:
            tails = random.sample(tails, random.randrange(1, len(tails)))
        kinds = random.choice([KINDS, *[(kind,) for kind in KINDS]])
        for tail in tails:
            kind = random.choice(kinds)
            self._damage(tail, kind, random)
            if tail.node_id in relied_on[tail.partition]:
                self._sometimes.reached(f"tail damaged: {kind}")
        self._note_damage(tails, first, idle)

    def _note_damage(self, tails: Sequence[_Tail], first: Machine, idle: _Logs) -> None:
        damaged = sorted({tail.node_id for tail in tails})
        self._injector.has_damaged = True
        brokers = self._cluster_history.image.state.brokers
        self._victims = {node_id: brokers[node_id].broker_epoch for node_id in damaged}
        if len(damaged) > 1:
            self._sometimes.reached("tails damaged on two of five")
        touched = {tail.partition for tail in tails if tail.node_id == first.node_id}
        if touched & idle.keys():
            self._sometimes.reached("idle tail damaged")
        for node_id in damaged:
            proven = [*idle] if node_id == first.node_id else []
            for listener in self._cluster_history.on_tail_damaged:
                listener(node_id, proven)

    def _damage(self, tail: _Tail, kind: str, random: Random) -> None:
        disk = self._machine(tail.node_id).node.disk
        last = tail.batches[-1]
        end = last.position + last.header.size
        if kind == "bit":
            bit = random.randrange(last.header.size * 8)
            disk.flip_bit(tail.path, last.position + bit // 8, bit % 8)
        elif kind == "bytes":
            disk.cut_file(tail.path, end - random.randint(1, min(_BYTES_MAX, last.header.size)))
        elif kind == "batches":
            disk.cut_file(tail.path, random.choice(tail.batches[-3:]).position)
        else:
            start = random.randrange(tail.batches[-3:][0].position, end)
            disk.damage(tail.path, start, bytes(end - start))

    # Earlier copies of a disk.

    def _directory_back(self, fault: Fault) -> None:
        """Copy the disk of a node, and put the copy back after a later process has registered."""
        random = Random(fault.dice)
        machine = random.choice(self._machines.all)
        copied = machine.node.disk.copy()
        identity = read_small_file(copied, NODE_NAME, NodeIdentity)
        if identity is None:
            return
        looks_left = _BACK_LOOKS
        is_known = has_restarted = False

        def look() -> None:
            nonlocal looks_left, is_known, has_restarted
            looks_left -= 1
            if self._is_over or not looks_left:
                return
            was_known, is_known = is_known, self._all_know(machine, identity)
            if was_known and is_known and self._is_alone(machine):
                if self._may_damage():
                    self._put_back(machine, copied, random)
                return
            if not has_restarted and self._epoch_of(machine) <= identity.directory_epoch:
                has_restarted = True  # Nothing else may end the process before the run does.
                machine.next_down_s = _SOON_S
                machine.kill()
            self._injector.later(_LOOK_S, look)

        self._injector.later(0.2 + fault.duration / 2, look)

    def _put_back(self, machine: Machine, copied: FaultyDisk, random: Random) -> None:
        self._injector.has_damaged = machine.was_damaged = True
        self._victims = {}
        if random.random() < _OUTAGE_ON_RETURN:
            self._fall([machine], random)
        else:
            machine.next_down_s = _SOON_S
            machine.kill()
        machine.node.put_disk_back(copied)
        for listener in self._cluster_history.on_disk_damaged:
            listener(machine.node_id)
        self._sometimes.reached("directory went back")

    def _all_know(self, machine: Machine, identity: NodeIdentity) -> bool:
        """Return whether all other nodes know of a later process in this directory.

        Only then does each of them tell the node that its vote is old.
        """
        broker = self._broker_of(machine)
        if broker is None or broker.disk_id != identity.disk_id:
            return False
        indexes = [
            index
            for epoch, index in self._written.get(machine.node_id, ())
            if epoch > identity.directory_epoch
        ]
        return bool(indexes) and all(
            node.applied_index >= indexes[0]
            for node_id, node in self._cluster_history.nodes.items()
            if node_id != machine.node_id
        )

    def _epoch_of(self, machine: Machine) -> int:
        broker = self._broker_of(machine)
        return 0 if broker is None else broker.directory_epoch or 0

    def _broker_of(self, machine: Machine) -> BrokerRegistration | None:
        return self._cluster_history.image.state.brokers.get(machine.node_id)

    def _is_alone(self, machine: Machine) -> bool:
        """Return whether other replicas are relied on wherever this node's are."""
        return all(
            _is_bearable(machine.node_id, [machine], {*partition.in_sync_or_eligible})
            for partition in self._partitions().values()
        )

    # The outage, and the return.

    def _fall(self, victims: Sequence[Machine], random: Random) -> None:
        """End all processes at once; mostly the damaged nodes come back before the others."""
        is_power_cut = random.random() < _POWER_CUTS
        is_aimed = random.random() < _DAMAGED_FIRST
        self._sometimes.reached("all crashed")
        for machine in self._machines.all:
            down_s = random.uniform(*_LATE_S)
            if machine in victims and is_aimed:
                down_s = _SOON_S
            if machine.is_up:
                machine.next_down_s = down_s
            else:
                self._injector.later(down_s, machine.start_now)
            if is_power_cut:
                machine.cut_power()
            else:
                machine.kill()

    def _may_damage(self) -> bool:
        """Return whether no disk is damaged now: one that lost only tails may be whole again."""
        if not self._injector.has_damaged:
            return True
        brokers = self._cluster_history.image.state.brokers
        return bool(self._victims) and all(
            node_id in brokers
            and brokers[node_id].broker_epoch > epoch
            and all(
                node_id in partition.in_sync_replicas
                for partition in self._partitions().values()
                if node_id in partition.replicas
            )
            for node_id, epoch in self._victims.items()
        )

    def _partitions(self) -> dict[Partition, PartitionRegistration]:
        state = self._cluster_history.image.state
        return {
            (topic.topic_id, number): partition
            for topic in state.catalog.topics
            for number, partition in enumerate(state.partitions(topic.topic_id))
        }

    def _committed(self, entry: Sequence[object]) -> None:
        for record in entry:
            if isinstance(record, BrokerChanged) and record.directory_epoch is not None:
                known = self._written.setdefault(record.node_id, [])
                known.append((record.directory_epoch, self._cluster_history.end_index))
            elif isinstance(record, PartitionChanges):
                for topic_id, number, partition in record.changes():
                    self._changed((topic_id, number), partition)

    def _changed(self, key: Partition, partition: PartitionRegistration) -> None:
        before = self._leaderless.pop(key, None)
        if partition.leader is None:
            self._leaderless[key] = partition
        elif before is not None and any(
            each.node_id == partition.leader for each in before.unverified_replicas
        ):
            self._sometimes.reached("led after a comparison")

    def _machine(self, node_id: int) -> Machine:
        return next(machine for machine in self._machines.all if machine.node_id == node_id)


def _is_bearable(node_id: int, victims: Sequence[Machine], relied_on: Collection[int]) -> bool:
    """Return whether enough intact replicas of a partition are relied on."""
    damaged = {machine.node_id for machine in victims} & {*relied_on}
    if node_id not in damaged:
        return True
    intact_count = len({*relied_on} - damaged)
    return intact_count >= (1 if len(damaged) == 1 else _ALL_INTACT)


def _tails(machine: Machine) -> list[_Tail]:
    """Return the newest segments of all replicas of a node that have records."""
    disk = machine.node.disk
    newest: dict[str, tuple[int, str]] = {}
    for path in disk.paths():
        directory, _, name = path.rpartition("/")
        base = base_offset_of(name, LOG_SUFFIX)
        if path.startswith("topics/") and base is not None:
            newest[directory] = max((base, path), newest.get(directory, (base, path)))
    tails: list[_Tail] = []
    for directory, (_, path) in sorted(newest.items()):
        found = _REPLICA.fullmatch(directory)
        if found is None:
            continue
        key = (bytes.fromhex(found[1]), int(found[2]))
        batches = intact_batches(disk.durable_bytes(path), path, key[1])
        if batches:
            tails.append(_Tail(machine.node_id, key, path, batches))
    return tails
