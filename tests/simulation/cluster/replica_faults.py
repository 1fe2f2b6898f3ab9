"""Faults that are aimed at replicas.

They hit the leader of a partition, a leader that has just taken over, or the disks of logs.
"""

import errno
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Final, Protocol, final

from tests.simulation.broker.bit_rot import provable_batches
from tests.simulation.broker.plans import Fault
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.cluster.cluster_history import ClusterHistory
from tests.simulation.cluster.machines import Machine, Machines
from tests.simulation.cluster.replica_log import Partition
from tests.simulation.machine.broker_host import TOPIC
from tests.simulation.machine.file_tree import os_error
from tidelog.coordinator.metadata import records

_LOGS = "topics/"
_FREE_BYTES_MAX = 4096
_KILLED_AFTER_PAUSE = 0.6
_MISSED = 0.5
"""Fraction of these faults that last until other brokers take over."""
_LOOK_S = 0.5
_LOOKS = 6
_PARTED_ON_RETURN = 0.7
_AT_LEADERS = 0.7
"""Fraction of the crashes after appends that hit the leader of the partition."""

DiskAim = Callable[[Machine, str, str], bool]
"""Receives a disk call before it takes effect; returns whether this is the moment to strike."""


class Injector(Protocol):
    """Faults of any machine; see `tests.simulation.cluster.faults.FaultInjector`."""

    def later(self, seconds: float, heal: Callable[[], None]) -> None:
        """Heal after a delay, and at the end in any case, but once."""
        ...

    def crash(self, machine: Machine, dice: float) -> None:
        """Kill the process, or cut the power."""
        ...

    def crash_within(self, machine: Machine, seconds: float, dice: float) -> None:
        """Crash a machine soon, unless another process runs by then."""
        ...

    def kill_within(self, machine: Machine, seconds: float, *, down_s: float) -> None:
        """Kill a process soon, and restart it after others have taken over."""
        ...

    def isolate(self, machine: Machine, fault: Fault) -> None:
        """Cut a node off from the others."""
        ...

    def aim_at_disk(self, aim: DiskAim) -> None:
        """Wait for a call to a disk."""
        ...

    def wipe(self, machine: Machine) -> None:
        """Replace a disk by an empty one."""
        ...

    def may_damage(self) -> bool:
        """Return whether no disk was damaged yet, and mark one as damaged now."""
        ...


@final
class ReplicaFaults:
    """Injects faults of replicas."""

    def __init__(
        self,
        injector: Injector,
        machines: Machines,
        cluster_history: ClusterHistory,
        *,
        sometimes: Sometimes,
        part_on_return: Callable[[int, Fault], None],
    ) -> None:
        """Strike by means of `injector`; see `ReturnFaults.part_on_return`."""
        self._part_on_return = part_on_return
        self._injector = injector
        self._machines = machines
        self._cluster_history = cluster_history
        self._sometimes = sometimes
        self._takeover_aims: list[Fault] = []
        self._is_over = False
        self._partitions: dict[Partition, records.PartitionRegistration] = {}
        cluster_history.on_committed.append(self._committed)
        self.effects: Final[Mapping[str, Callable[[Fault], None]]] = {
            "crash_partition_leader": partial(self._at_leader, strike=self._crash),
            "pause_partition_leader": partial(self._at_leader, strike=self._pause),
            "isolate_partition_leader": partial(self._at_leader, strike=injector.isolate),
            "crash_on_takeover": self._takeover_aims.append,
            "crash_after_append": self._crash_after_append,
            "fail_log_sync": self._fail_log_sync,
            "fill_disk": self._fill_disk,
            "wipe_disk": self._wipe_disk,
            "rot_replicas": self._rot_replicas,
        }
        """Injector of each kind."""

    def end(self) -> None:
        """Cancel all pending faults."""
        self._takeover_aims.clear()
        self._is_over = True

    def _any(self, fault: Fault) -> Machine:
        return self._machines.all[int(fault.dice * len(self._machines.all))]

    def _at_leader(self, fault: Fault, strike: Callable[[Machine, Fault], None]) -> None:
        """Strike at the leader of one of the partitions that clients write to."""
        state = self._cluster_history.image.state
        topic = next((each for each in state.catalog.topics if each.name == TOPIC), None)
        if topic is None:
            return
        partitions = state.partitions(topic.topic_id)
        leader = partitions[int(fault.dice * 1e4) % len(partitions)].leader
        if leader is not None:
            strike(self._machine(leader), fault)

    def _machine(self, node_id: int) -> Machine:
        return next(machine for machine in self._machines.all if machine.node_id == node_id)

    def _crash(self, machine: Machine, fault: Fault) -> None:
        self._injector.crash(machine, fault.dice)

    def _pause(self, machine: Machine, fault: Fault) -> None:
        """Pause a process, perhaps until others have taken over, and kill it when it resumes.

        Its requests and replies in flight are void then.
        """
        self._injector.later(fault.duration, machine.node.pause(fault.duration))
        if fault.dice * 100 % 1 < _KILLED_AFTER_PAUSE:
            self._sometimes.reached("killed after a pause")
            self._injector.crash_within(machine, fault.duration + 0.05, fault.dice)

    def _committed(self, entry: Sequence[object]) -> None:
        for record in entry:
            if isinstance(record, records.PartitionChanges):
                for topic_id, number, partition in record.changes():
                    self._changed((topic_id, number), partition)

    def _changed(self, key: Partition, partition: records.PartitionRegistration) -> None:
        before = self._partitions.get(key)
        self._partitions[key] = partition
        leader = partition.leader
        if before is not None and leader in before.eligible_leader_replicas:
            self._sometimes.reached("eligible replica led")
        if leader is None or not self._takeover_aims:
            return
        if before is not None and leader == before.leader:
            return
        fault = self._takeover_aims.pop()
        self._sometimes.reached("crash on takeover")
        # The crash comes between before it learns of its leadership and after followers have
        # fetched.
        seconds = 10 ** Random(fault.dice).uniform(-3, 0.3)
        self._injector.crash_within(self._machine(leader), seconds, fault.dice)

    # Disks.

    def _wipe_disk(self, fault: Fault) -> None:
        """Wipe the disk of a node that is eligible for a leadership and down, or else of any node.

        Sometimes the node cannot reach the leaders of its partitions when it comes back.
        """
        self._wipe_eligible(fault, _LOOKS)

    def _wipe_eligible(self, fault: Fault, looks_left: int) -> None:
        if self._is_over:
            return
        away = self._eligible_and_away()
        if looks_left and not away:
            self._injector.later(_LOOK_S, lambda: self._wipe_eligible(fault, looks_left - 1))
            return
        machine = self._machine(away[0]) if away else self._any(fault)
        self._injector.wipe(machine)
        if fault.dice * 100 % 1 < _PARTED_ON_RETURN:
            self._part_on_return(machine.node_id, fault)

    def _eligible_and_away(self) -> list[int]:
        state = self._cluster_history.image.state
        return [
            node_id
            for partition in self._partitions.values()
            for node_id in partition.eligible_leader_replicas
            if node_id in state.brokers and state.brokers[node_id].is_fenced
        ]

    def _leads(self, machine: Machine, path: str) -> bool:
        """Return whether a machine leads the partition whose log is at `path`."""
        state = self._cluster_history.image.state
        for topic in state.catalog.topics:
            if topic.topic_id.hex() in path:
                number = int(path.split("/")[2])
                partition = state.partition(topic.topic_id, number)
                return partition is not None and partition.leader == machine.node_id
        return False

    def _crash_after_append(self, fault: Fault) -> None:
        wants_leader = fault.dice * 100 % 1 < _AT_LEADERS

        def aim(machine: Machine, operation: str, path: str) -> bool:
            if operation != "write_at" or not _is_log(path):
                return False
            if wants_leader and not self._leads(machine, path):
                return False
            self._sometimes.reached("crash after append")
            # At that moment some followers may have fetched the batch, and others not.
            seconds = 10 ** Random(fault.dice).uniform(-4, -2)
            if wants_leader and fault.dice * 1000 % 1 < _MISSED:
                # The machine comes back with records that it alone appended, while others went on.
                self._injector.kill_within(machine, seconds, down_s=min(fault.duration, 3.0))
            else:
                self._injector.crash_within(machine, seconds, fault.dice)
            return True

        self._injector.aim_at_disk(aim)

    def _fail_log_sync(self, fault: Fault) -> None:
        remaining = int(fault.dice * 20)

        def aim(machine: Machine, operation: str, path: str) -> bool:
            nonlocal remaining
            if operation != "sync" or not _is_log(path):
                return False
            remaining -= 1
            if remaining >= 0:
                return False
            self._sometimes.reached("log offline")
            machine.has_failing_disk = True
            raise os_error(errno.EIO, path)

        self._injector.aim_at_disk(aim)

    def _fill_disk(self, fault: Fault) -> None:
        machine = self._any(fault)
        disk = machine.node.disk
        used = sum(len(disk.visible_bytes(path)) for path in disk.paths())
        disk.capacity_bytes = used + int(fault.dice * 1000 % 1 * _FREE_BYTES_MAX)
        machine.is_disk_full = True
        self._sometimes.reached("disk full")

        def make_room() -> None:
            machine.node.disk.capacity_bytes = None
            machine.is_disk_full = False

        self._injector.later(fault.duration, make_room)

    def _rot_replicas(self, fault: Fault) -> None:
        """Flip bits in one node's records, while it is down.

        A process sends the bytes that it wrote itself from the page cache, where bit rot would go
        unnoticed; it checks bytes from the disk.
        """
        machine, random = self._any(fault), Random(fault.dice)
        batches = provable_batches(machine.node.disk, TOPIC)
        if not batches or not self._injector.may_damage():
            return
        machine.kill()
        count = random.choice([1, 3, len(batches)])
        disk = machine.node.disk
        for batch in random.sample(batches, min(count, len(batches))):
            bit = random.randrange(batch.header.size * 8)
            disk.flip_bit(batch.path, batch.position + bit // 8, bit % 8)
        self._sometimes.reached("replicas corrupted")


def _is_log(path: str) -> bool:
    return path.startswith(_LOGS) and path.endswith(".log")
