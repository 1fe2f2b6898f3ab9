"""Disk faults: truncated, missing and stale files.

A broker detects the loss of files below a checkpoint, of files beside the records, and of a whole
log. It cannot detect a lost end of a log, which looks like records that never arrived. So a node
that may lose an end is kept away until it is in no ISR and not eligible. After that it must do no
harm, neither by its records nor by its belief about them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations
from random import Random
from typing import Final, Protocol, final

import msgspec

from tests.simulation.broker.plans import Fault
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.cluster.cluster_history import ClusterHistory
from tests.simulation.cluster.machines import Machine, Machines
from tests.simulation.cluster.replica_log import Cut
from tests.simulation.machine.broker_host import TOPIC
from tests.simulation.machine.disk_damage import Damage, bring_back, damage_file, durable_state
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.broker.partitions.replica_manifest import MANIFEST_NAME
from tidelog.logstore.checkpoint import CHECKPOINT_NAME, LogCheckpoint
from tidelog.logstore.segments.segment import INDEX_SUFFIX, LOG_SUFFIX, base_offset_of

_AIM_S = 10.0
_LOOK_S = 0.25
_AWAY_S: Final = 14.0
"""Maximum seconds, about, until a silent broker is removed from every ISR."""
_IS_PROVEN = 0.5
_WHILE_IT_RUNS = 0.4
_IDENTITY = "node"
_VOTE = "metadata/vote"
_LOSES_IDENTITY = 0.3
_LOSES_MANIFEST = 0.5
_SOON_S = 0.1
_LATE_S = 4.0
_KEEPS_METADATA = 0.5
_IS_COUNTED_ON = 0.8
_CUTS_ALL = 0.8
_WAYS_TO_GO = (list(Damage), [Damage.GONE], [Damage.EMPTY])
_CHECKPOINTS = 0.3
_CHECKPOINT_PREFIX_BYTES = 16


class Injector(Protocol):
    """Faults of any machine; see `tests.simulation.cluster.faults.FaultInjector`."""

    has_damaged: bool
    """Whether a disk was damaged."""

    def later(self, seconds: float, heal: Callable[[], None]) -> None:
        """Heal after a delay, and at the end in any case, but once."""
        ...

    def may_damage(self) -> bool:
        """Return whether no disk was damaged yet, and mark one as damaged now."""
        ...


@final
class DiskFaults:
    """Injects disk faults."""

    def __init__(
        self,
        injector: Injector,
        machines: Machines,
        cluster_history: ClusterHistory,
        *,
        sometimes: Sometimes,
    ) -> None:
        """Strike by means of `injector`."""
        self._injector = injector
        self._machines = machines
        self._cluster_history = cluster_history
        self._sometimes = sometimes
        self._cut_aims: list[Fault] = []
        self._is_over = False
        cluster_history.on_cut.append(self._cuts)
        self.effects: Final[Mapping[str, Callable[[Fault], None]]] = {
            "cut_files": self._cut_files,
            "stale_files": self._stale_files,
            "stale_after_cut": self._aim_at_cut,
            "damage_all_files": self._damage_all,
        }
        """Injector of each kind."""

    def end(self) -> None:
        """Cancel all pending faults."""
        self._cut_aims.clear()
        self._is_over = True

    # Truncated and missing files.

    def _cut_files(self, fault: Fault) -> None:
        machine, random = self._any(fault), Random(fault.dice)
        if random.random() < _IS_PROVEN:
            self._cut_proven(machine, random)
        else:
            self._when_expendable([machine], partial(self._cut_any, machine, random))

    def _cut_proven(self, machine: Machine, random: Random) -> None:
        """Truncate files whose loss a broker detects, on a node that may be in an ISR."""
        if self._injector.has_damaged:
            return  # A damaged checkpoint may no longer reveal the loss.
        disk = machine.node.disk
        is_beside = random.random() < _CHECKPOINTS
        paths = _sample(random, _checkpoints(disk) if is_beside else _proven_files(disk))
        if not paths or not self._injector.may_damage():
            return
        if machine.is_up and random.random() < _WHILE_IT_RUNS:
            self._sometimes.reached("files cut while in use")
        else:
            machine.kill()
            disk = machine.node.disk
            self._sometimes.reached("files cut")
        for path in paths:
            _damage(disk, path, random, kinds=[Damage.SHORT, Damage.EMPTY, Damage.GONE])

    def _cut_any(self, machine: Machine, random: Random) -> None:
        disk = machine.node.disk
        for path in _sample(random, self._log_files(disk)):
            _damage(disk, path, random, kinds=[Damage.SHORT, Damage.EMPTY, Damage.GONE])
        self._sometimes.reached("ends of logs lost")

    def _damage_all(self, fault: Fault) -> None:
        """Damage every file of as many nodes as possible: a minority of each replica set."""
        random = Random(fault.dice)
        machines = self._minority(random)
        is_counted_on = random.random() < _IS_COUNTED_ON
        kinds = random.choice(_WAYS_TO_GO)

        def damage() -> None:
            for machine in machines:
                self._damage_files_of(machine, random, kinds)
                if not is_counted_on:
                    self._damage_identity_of(machine, random)
            self._sometimes.reached(f"all files damaged on {len(machines)} of nodes")

        if is_counted_on:
            self._while_in_sync(machines, damage, is_power_cut=random.random() < _CUTS_ALL)
        else:
            self._when_expendable(machines, damage)

    def _damage_files_of(self, machine: Machine, random: Random, kinds: Sequence[Damage]) -> None:
        disk = machine.node.disk
        for path in self._log_files(disk):
            _damage(disk, path, random, kinds=kinds)
        if random.random() < _LOSES_MANIFEST and MANIFEST_NAME in disk.paths():
            _damage(disk, MANIFEST_NAME, random, kinds=list(Damage))
        if random.random() < _KEEPS_METADATA:
            return  # The node restarts as fast as the others.
        paths = set(disk.paths())
        if _VOTE in paths and disk.durable_bytes(_VOTE):
            # A node that lost its vote, and detects that, never votes under its old identity.
            for path in sorted(each for each in paths if each.startswith("metadata/")):
                damage_file(disk, path, random.choice([Damage.BITS, Damage.SHORT]), random=random)

    def _damage_identity_of(self, machine: Machine, random: Random) -> None:
        if random.random() < _LOSES_IDENTITY:
            damage_file(machine.node.disk, _IDENTITY, Damage.BITS, random=random)
            machine.is_beyond_repair = True

    # Stale files.

    def _stale_files(self, fault: Fault) -> None:
        machine, random = self._any(fault), Random(fault.dice)
        disk = machine.node.disk
        earlier = durable_state(disk, _sample(random, self._log_files(disk)))
        self._bring_back_later(machine, earlier, fault)

    def _aim_at_cut(self, fault: Fault) -> None:
        def cancel() -> None:
            if fault in self._cut_aims:
                self._cut_aims.remove(fault)

        self._cut_aims.append(fault)
        self._injector.later(_AIM_S, cancel)

    def _cuts(self, cut: Cut) -> None:
        """Keep the records that a follower is about to truncate, as a stale version of its log."""
        if not self._cut_aims:
            return
        fault = self._cut_aims.pop()
        machine = self._machine(cut.node_id)
        disk = machine.node.disk
        topic_id, number = cut.partition
        paths = [
            path
            for path in disk.paths()
            if f".{topic_id.hex()}/{number}/" in path and path.endswith(LOG_SUFFIX)
        ]
        self._sometimes.reached("remembers what was cut off")
        self._bring_back_later(machine, durable_state(disk, paths), fault)

    def _bring_back_later(
        self, machine: Machine, earlier: Mapping[str, bytes], fault: Fault
    ) -> None:
        random = Random(fault.dice)

        def come_back() -> None:
            if bring_back(machine.node.disk, earlier, random):
                self._sometimes.reached("stale files")

        def go_away() -> None:
            self._when_expendable([machine], come_back)

        self._injector.later(0.5 + 2 * fault.duration, go_away)

    # Which nodes can lose their disk.

    def _while_in_sync(
        self, machines: Sequence[Machine], damage: Callable[[], None], *, is_power_cut: bool
    ) -> None:
        """Stop nodes that are in an ISR, and damage their disks at once: they must detect that.

        While enough other replicas are in sync no replica is eligible. So mostly all nodes lose
        power at once, and some restart late; then all replicas are eligible except the first that
        restarts.
        """
        if self._is_over or not machines or not self._injector.may_damage():
            return
        if is_power_cut:
            others = [machine for machine in self._machines.all if machine not in machines]
            for machine in others:
                machine.next_down_s = _LATE_S
                machine.cut_power()
            others[0].next_down_s = _SOON_S
        for machine in machines:
            if is_power_cut:
                machine.next_down_s = _SOON_S
            machine.cut_power()
            machine.was_damaged = True
            for listener in self._cluster_history.on_disk_damaged:
                listener(machine.node_id)
        damage()
        self._sometimes.reached("all files damaged while in sync")

    def _when_expendable(self, machines: Sequence[Machine], damage: Callable[[], None]) -> None:
        """Stop nodes, and damage their disks when they are in no ISR and not eligible any more."""
        if self._is_over or not all(machine.is_up for machine in machines):
            return
        processes = [machine.node.process for machine in machines]
        for machine in machines:
            machine.next_down_s = _AWAY_S
            machine.stop()  # A node that stops cleanly leaves the ISR at once.
        looks_left = int(_AWAY_S / _LOOK_S) - 1

        def look() -> None:
            nonlocal looks_left
            looks_left -= 1
            running = [machine.node.process for machine in machines if machine.is_up]
            if self._is_over or not all(process in processes for process in running):
                return
            if running and looks_left:
                self._injector.later(_LOOK_S, look)
            elif not running and not self._damage_expendable(machines, damage):
                if looks_left and not self._injector.has_damaged:
                    self._injector.later(_LOOK_S, look)
                    return
                for machine in machines:
                    machine.start_now()

        look()

    def _damage_expendable(self, machines: Sequence[Machine], damage: Callable[[], None]) -> bool:
        """Damage expendable disks, and restart their nodes; return whether it was done."""
        if not self._are_expendable(machines) or not self._injector.may_damage():
            return False
        for machine in machines:
            machine.was_damaged = True
            for listener in self._cluster_history.on_disk_changed:
                listener(machine.node_id)
        damage()
        for machine in machines:
            machine.start_now()
        return True

    def _are_expendable(self, machines: Iterable[Machine]) -> bool:
        """Return whether these nodes are in no ISR and not eligible, and cannot become so.

        While a broker is unfenced, the cluster still grants a leader's ISR change for it, even if
        its process has ended (seed 7400010).
        """
        node_ids = {machine.node_id for machine in machines}
        state = self._cluster_history.image.state
        if any(node_id in node_ids and each.can_lead for node_id, each in state.brokers.items()):
            return False
        return all(
            node_ids.isdisjoint((*partition.in_sync_replicas, *partition.eligible_leader_replicas))
            for topic in state.catalog.topics
            for partition in state.partitions(topic.topic_id)
        )

    def _minority(self, random: Random) -> list[Machine]:
        """Return nodes that have less than half of the replicas of each partition."""
        state = self._cluster_history.image.state
        replica_sets = {
            partition.replicas
            for topic in state.catalog.topics
            for partition in state.partitions(topic.topic_id)
        }
        machines = self._machines.all
        count_max = (len(machines) - 1) // 2
        choices = [
            chosen
            for count in range(1, count_max + 1)
            for chosen in combinations(machines, count)
            if all(
                2 * sum(machine.node_id in replicas for machine in chosen) < len(replicas)
                for replicas in replica_sets
            )
        ]
        most = max((len(chosen) for chosen in choices), default=0)
        largest = [chosen for chosen in choices if len(chosen) == most]
        return list(random.choice(largest)) if largest else []

    def _log_files(self, disk: FaultyDisk) -> list[str]:
        return [path for path in disk.paths() if path.startswith("topics/")]

    def _any(self, fault: Fault) -> Machine:
        return self._machines.all[int(fault.dice * len(self._machines.all))]

    def _machine(self, node_id: int) -> Machine:
        return next(machine for machine in self._machines.all if machine.node_id == node_id)


def _damage(disk: FaultyDisk, path: str, random: Random, *, kinds: Sequence[Damage]) -> None:
    damage_file(disk, path, random.choice(kinds), random=random)


def _sample(random: Random, paths: Sequence[str]) -> list[str]:
    """Return one of the paths, some, or all."""
    count = random.choice([1, (len(paths) + 1) // 2, len(paths)])
    return random.sample(paths, min(count, len(paths)))


def _checkpoints(disk: FaultyDisk) -> list[str]:
    return [path for path in disk.paths() if _is_of_topic(path) and path.endswith(CHECKPOINT_NAME)]


def _is_of_topic(path: str) -> bool:
    return path.startswith(f"topics/{TOPIC}.")


def _proven_files(disk: FaultyDisk) -> list[str]:
    """Return segments and indexes whose damage a broker detects.

    A checkpoint says which segments are complete on the disk. So either these files are damaged or
    the checkpoint is.
    """
    proven: list[str] = []
    paths = set(disk.paths())
    for path in disk.paths():
        directory, _, name = path.rpartition("/")
        known = f"{directory}/{CHECKPOINT_NAME}"
        if not _is_of_topic(path) or known not in paths:
            continue
        checkpoint = msgspec.msgpack.decode(
            disk.durable_bytes(known)[_CHECKPOINT_PREFIX_BYTES:], type=LogCheckpoint
        )
        base = base_offset_of(name, LOG_SUFFIX)
        is_sealed = base is not None and base < checkpoint.recovery_base_offset
        if is_sealed or name.endswith(INDEX_SUFFIX):
            proven.append(path)
    return proven
