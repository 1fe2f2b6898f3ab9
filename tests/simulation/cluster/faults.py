"""Faults of a plan, and their injector for a cluster.

Some faults are aimed: at a leader, or at moments that last microseconds.
"""

import errno
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from random import Random
from typing import TypeVar, final

from tests.simulation.broker.plans import Fault
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.cluster.clients import Clients
from tests.simulation.cluster.cluster_history import ClusterHistory
from tests.simulation.cluster.disk_faults import DiskFaults
from tests.simulation.cluster.machines import Machine, Machines
from tests.simulation.cluster.plans import ClusterPlan
from tests.simulation.cluster.replica_faults import DiskAim, ReplicaFaults
from tests.simulation.cluster.replicas import Replicas
from tests.simulation.cluster.return_faults import ReturnFaults
from tests.simulation.cluster.tail_faults import TailFaults
from tests.simulation.machine.file_tree import os_error
from tests.simulation.machine.link import LinkQuality
from tests.simulation.machine.world import World
from tidelog.coordinator.metadata.broker_sessions import SESSION_MS
from tidelog.coordinator.raft.messages import Entry, EntryKind
from tidelog.coordinator.raft_node.node import RaftNode

_METADATA = "metadata/"
_SMALL_FILES = ("metadata/vote", "metadata/snapshot")
_SHORT_S = 0.005
"""Maximum delay of a crash after the moment that it is aimed at, in seconds."""
_POWER_CUTS = 0.6
"""Fraction of aimed crashes that also cut the power."""

_AIM_S = 5.0
"""Seconds that a fault waits for its moment."""
_POWER_IS_BACK_S = 1.0
_MISSED_S = 1.5
"""Seconds without a listener after which the other brokers treat a broker as gone."""
_NEW_DISK_S = 2.0
"""Seconds that a machine is down while its disk is replaced."""
_ELECTION_S = 2.0
"""Seconds that the other nodes need for an election."""
_SESSION_S = SESSION_MS / 1000 + 1.0
"""Seconds that the other nodes need to fence a broker."""
_ALL_ARE_SLOW = 0.4
"""Fraction of slow disk faults that slow all disks."""

Aim = TypeVar("Aim")


@final
class FaultInjector:
    """Injects the faults of one plan."""

    def __init__(
        self,
        world: World,
        machines: Machines,
        cluster_history: ClusterHistory,
        *,
        sometimes: Sometimes,
        clients: Clients,
        replicas: Replicas,
        asides: Mapping[str, Callable[[Fault], None]],
    ) -> None:
        """Attack the machines and the clients; `asides` schedule the faults of their kinds."""
        self._asides = asides
        self._world = world
        self._machines = machines
        self._sometimes = sometimes
        self._clients = clients
        self._heals: list[Callable[[], None]] = []
        self._is_over = False
        self._clock_jump_s = 0.0
        self.has_damaged = False
        """Whether a disk was damaged: of one node in a run, or of a minority at once."""
        self._disk_aims: list[DiskAim] = []
        self._commit_aims: list[Fault] = []
        self._election_aims: list[Fault] = []
        self._normal_sync_s = machines.all[0].node.disk_speed.sync_mean_s
        cluster_history.on_applied.append(self._committed)
        cluster_history.on_elected.append(self._elected)
        for machine in machines.all:
            machine.node.disk_watcher = partial(self._watch, machine)
        self._return_faults = ReturnFaults(self, machines, cluster_history, sometimes=sometimes)
        part = self._return_faults.part_on_return
        self._replica_faults = ReplicaFaults(
            self, machines, cluster_history, sometimes=sometimes, part_on_return=part
        )
        self._disk_faults = DiskFaults(self, machines, cluster_history, sometimes=sometimes)
        self._tail_faults = TailFaults(
            self,
            machines,
            cluster_history,
            sometimes=sometimes,
            settled_logs=replicas.settled_logs,
        )
        self._effects = {
            **self._own_effects(),
            **self._replica_faults.effects,
            **self._return_faults.effects,
            **self._disk_faults.effects,
            **self._tail_faults.effects,
        }

    def _own_effects(self) -> Mapping[str, Callable[[Fault], None]]:
        return {
            "kill": lambda fault: self._any(fault).kill(),
            "cut_power": lambda fault: self._any(fault).cut_power(),
            "cut_all": lambda _: self._cut_all(),
            "stop": lambda fault: self._any(fault).stop(),
            "pause": lambda fault: self._hold(self._any(fault).node.pause(fault.duration)),
            "stall_loop": lambda fault: self._hold(
                self._any(fault).node.stall_loop(fault.duration)
            ),
            "stall_disk": lambda fault: self.stall_disk(self._any(fault), fault.duration),
            "slow_disk": self._slow_disk,
            "fail_sync": self._fail_sync,
            "damage_voter": self._damage_voter,
            "jump_clock": self._jump_clock,
            "partition": self._partition,
            "isolate": lambda fault: self.isolate(self._any(fault), fault),
            "slow_link": self._slow_link,
            "break_connections": self._break_connections,
            "kill_leader": lambda fault: self._at_leader(fault, self._crash_leader),
            "cut_leader": lambda fault: self._at_leader(fault, self._crash_leader),
            "pause_leader": lambda fault: self._at_leader(
                fault, lambda leader, _: self._hold(leader.node.pause(fault.duration))
            ),
            "isolate_leader": lambda fault: self._at_leader(fault, self.isolate),
            "crash_on_commit": partial(self._aim, self._commit_aims),
            "cut_all_on_commit": partial(self._aim, self._commit_aims),
            "crash_on_election": partial(self._aim, self._election_aims),
            "crash_on_vote": partial(self._crash_at, is_vote=True),
            "crash_in_write": partial(self._crash_at, is_vote=False),
            "kill_client": lambda fault: self._clients.kill(fault.dice),
            "leave_group": lambda fault: self._clients.leave_group(fault.dice),
        }

    def learn(self, effects: Mapping[str, Callable[[Fault], None]]) -> None:
        """Add kinds of faults."""
        self._effects = {**self._effects, **effects}

    def begin(self, plan: ClusterPlan) -> None:
        """Degrade network, disks and clocks, and schedule all faults."""
        network = plan.network
        self._world.network.set_quality(
            LinkQuality(
                delay_mean_s=network.delay_mean_s,
                loss=network.loss,
                split=network.split,
                reset=network.reset,
                bytes_per_s=inf if network.bytes_per_s is None else network.bytes_per_s,
            )
        )
        self._world.network.window_bytes = network.window_bytes
        self._clock_jump_s = plan.clock_jump_s
        random = self._world.streams.stream("clocks")
        for node in self._world.nodes.values():
            node.wall_clock.jump(random.uniform(-1, 1) * plan.clock_error_s)
            node.wall_clock.drift(1 + random.uniform(-1, 1) * plan.clock_drift)
        self._world.buggify.site_rate = plan.buggify_rate
        self._world.buggify.fire_rate = 0.25
        for fault in plan.faults:
            if fault.kind in self._asides:
                self._asides[fault.kind](fault)
            else:
                self._world.clock.call_later(fault.at, partial(self._strike, fault))

    def end(self) -> None:
        """Revert all faults."""
        self._world.trace.note("fault injector", "ends")
        self._is_over = True
        self._disk_aims.clear()
        self._commit_aims.clear()
        self._election_aims.clear()
        self._replica_faults.end()
        self._return_faults.end()
        self._disk_faults.end()
        self._tail_faults.end()
        for heal in self._heals:
            heal()
        self._world.network.set_quality(LinkQuality())
        self._world.buggify.site_rate = 0.0
        for machine in self._machines.all:
            machine.is_hurried, machine.next_down_s = True, None
        self._start_all()

    def _strike(self, fault: Fault) -> None:
        if not self._is_over:
            self._world.trace.note("fault injector", f"{fault.kind} {fault.duration} {fault.dice}")
            self._effects[fault.kind](fault)

    def later(self, seconds: float, heal: Callable[[], None]) -> None:
        """Heal after a delay, and at the end in any case, but once."""
        is_healed = False

        def heal_once() -> None:
            nonlocal is_healed
            if not is_healed:
                is_healed = True
                heal()

        self._heals.append(heal_once)
        self._world.clock.call_later(seconds, heal_once)

    def _any(self, fault: Fault) -> Machine:
        return self._machines.all[int(fault.dice * len(self._machines.all))]

    def crash(self, machine: Machine, dice: float) -> None:
        """Kill the process of a machine, or cut its power."""
        if machine is self._machines.leader():
            self._sometimes.reached("leader crashed")
        if dice * 1000 % 1 < _POWER_CUTS:
            machine.cut_power()
        else:
            machine.kill()

    def _cut_all(self) -> None:
        self._sometimes.reached("all crashed")
        for machine in self._machines.all:
            machine.cut_power()
        self._world.clock.call_later(_POWER_IS_BACK_S, self._start_all)

    def _start_all(self) -> None:
        for machine in self._machines.all:
            machine.start_now()

    def _aim(self, aims: list[Aim], aim: Aim) -> None:
        """Wait a limited time for a moment; a cluster that never recovers reaches few states."""
        if aims:
            return

        def cancel() -> None:
            if aim in aims:
                aims.remove(aim)

        aims.append(aim)
        self._world.clock.call_later(_AIM_S, cancel)

    # Aimed at the leader.

    def _at_leader(self, fault: Fault, strike: Callable[[Machine, Fault], None]) -> None:
        leader = self._machines.leader()
        if leader is not None:
            strike(leader, fault)

    def _crash_leader(self, leader: Machine, fault: Fault) -> None:
        self._sometimes.reached("leader crashed")
        if fault.kind == "cut_leader":
            leader.cut_power()
        else:
            leader.kill()

    def _committed(self, node: RaftNode, entry: Entry) -> None:
        if not (self._commit_aims and node.is_leader and entry.kind is EntryKind.COMMAND):
            return
        self._sometimes.reached("crash on commit")
        fault = self._commit_aims.pop(0)
        if fault.kind == "cut_all_on_commit":
            self._cut_all()
        else:
            self.crash(self._machines.of(node), fault.dice)

    def _elected(self, node: RaftNode) -> None:
        if not self._election_aims:
            return
        fault = self._election_aims.pop(0)
        machine = self._machines.of(node)
        self._sometimes.reached("crash on election")
        if fault.dice < 0.3:
            self.crash(machine, fault.dice)
        else:  # After some nodes have learned of it, and it may have appended.
            self.crash_within(machine, fault.dice * 100 % 1 * _SHORT_S, fault.dice)

    def crash_within(self, machine: Machine, seconds: float, dice: float) -> None:
        """Crash a machine after so long, unless another process runs there by then."""
        process = machine.node.process

        def crash() -> None:
            if not self._is_over and machine.node.process is process:
                self.crash(machine, dice)

        self._world.clock.call_later(seconds, crash)

    def kill_within(self, machine: Machine, seconds: float, *, down_s: float) -> None:
        """Kill the process of a machine after so long; restart it after the others have noticed."""
        process = machine.node.process

        def kill() -> None:
            if not self._is_over and machine.node.process is process:
                machine.next_down_s = _MISSED_S + down_s
                machine.kill()

        self._world.clock.call_later(seconds, kill)

    # Disks.

    def _watch(self, machine: Machine, operation: str, path: str) -> None:
        for aim in list(self._disk_aims):
            try:
                is_reached = aim(machine, operation, path)
            except OSError:
                self._disk_aims.remove(aim)
                raise
            if is_reached:
                self._disk_aims.remove(aim)

    def _crash_at(self, fault: Fault, *, is_vote: bool) -> None:
        def aim(machine: Machine, operation: str, path: str) -> bool:
            if is_vote and (operation != "rename" or not path.startswith(f"{_METADATA}vote")):
                return False
            if not is_vote and (operation != "sync" or not _is_metadata_log(path)):
                return False
            self._sometimes.reached("crash on vote" if is_vote else "crash in write")
            self.crash_within(machine, fault.dice * 100 % 1 * _SHORT_S, fault.dice)
            return True

        self._aim(self._disk_aims, aim)

    def _fail_sync(self, fault: Fault) -> None:
        remaining = int(fault.dice * 10)

        def aim(machine: Machine, operation: str, path: str) -> bool:
            nonlocal remaining
            if operation != "sync" or not _is_metadata_log(path):
                return False
            remaining -= 1
            if remaining >= 0:
                return False
            machine.has_failing_disk = True
            raise os_error(errno.EIO, path)

        self._aim(self._disk_aims, aim)

    def _damage_voter(self, fault: Fault) -> None:
        """Flip a bit of a node's vote or log, or of its snapshot, while it is down.

        Only one node in a run is damaged: without two of three voters, committed entries are lost.
        """
        machine = self._any(fault)
        if self.has_damaged:
            return
        machine.kill()
        disk = machine.node.disk
        names = [name for name in _SMALL_FILES if disk.exists(name) and disk.durable_bytes(name)]
        if not names:
            return
        self.has_damaged = machine.was_damaged = True
        self._sometimes.reached("voter damaged")
        random = Random(fault.dice)
        name = random.choice(names)
        bit = random.randrange(len(disk.durable_bytes(name)) * 8)
        self._world.trace.note(machine.node.name, f"has a bit flipped: {bit} of {name}")
        disk.flip_bit(name, bit // 8, bit % 8)

    def wipe(self, machine: Machine) -> None:
        """Replace a disk by an empty one within a moment; one node in a run, as `_damage_voter`."""
        if self._is_over or not self.may_damage():
            return
        machine.was_damaged = True
        self._sometimes.reached("disk wiped")

        def replace() -> None:
            machine.kill()
            machine.next_down_s = _NEW_DISK_S
            machine.node.wipe_disk()

        self._world.clock.call_later(0.0, replace)

    def may_damage(self) -> bool:
        """Return whether no disk was damaged yet, and mark one as damaged now."""
        was_damaged, self.has_damaged = self.has_damaged, True
        return not was_damaged

    def is_hindered(self, machine: Machine) -> bool:
        """Return whether a process or its disk is slower than without faults."""
        process, speed = machine.node.process, machine.node.disk_speed
        return (
            machine.is_disk_full
            or machine.has_failing_disk
            or speed.stalled_until > self._world.clock.now
            or speed.sync_mean_s > self._normal_sync_s
            or (process is not None and process.is_held)
        )

    def aim_at_disk(self, aim: DiskAim) -> None:
        """Wait a limited time for a call to a disk."""
        self._aim(self._disk_aims, aim)

    def _hold(self, release: Callable[[], None]) -> None:
        self._heals.append(release)

    def stall_disk(self, machine: Machine, seconds: float) -> None:
        """Stall all calls to a disk for so long."""
        machine.node.stall_disk(seconds)
        self._heals.append(lambda: machine.node.stall_disk(0.0))

    def _slow_disk(self, fault: Fault) -> None:
        """Slow a disk, or all disks, like disks in a shared storage."""
        is_common = fault.dice * 10 % 1 < _ALL_ARE_SLOW
        slow = self._machines.all if is_common else [self._any(fault)]
        for machine in slow:
            machine.node.disk_speed.sync_mean_s = max(self._normal_sync_s, fault.dice * 0.5)

        def speed_up() -> None:
            for machine in slow:
                machine.node.disk_speed.sync_mean_s = self._normal_sync_s

        self.later(fault.duration, speed_up)

    # Network and clocks.

    def _partition(self, fault: Fault) -> None:
        """Split the cluster; each client is on one side, or sometimes on both."""
        random = Random(fault.dice)
        names = list(self._machines.names)
        random.shuffle(names)
        cut = random.randrange(1, len(names))
        sides = (names[:cut], names[cut:])
        has_clients = random.random() < 0.7
        if has_clients:
            for name in self._clients.names:
                random.choice(sides).append(name)
        self._cut_off(*sides, is_one_way=random.random() < 0.5, seconds=2 * fault.duration)

    def isolate(self, machine: Machine, fault: Fault) -> None:
        """Cut a node off from the other nodes; clients still reach all nodes."""
        others = [name for name in self._machines.names if name != machine.node.name]
        ends = ([machine.node.name], others)
        side = int(fault.dice * 1000) % 3
        if side == 1:
            ends = (ends[1], ends[0])
        seconds = (
            2 * fault.duration,
            _ELECTION_S * (1 + fault.dice),
            _SESSION_S + 2 * fault.duration,
        )[int(fault.dice * 100) % 3]
        self._cut_off(*ends, is_one_way=side < 2, seconds=seconds)

    def part(self, machine: Machine, others: Sequence[Machine], seconds: float) -> None:
        """Drop all packets between a machine and others for a while."""
        names = [other.node.name for other in others]
        self.later(seconds, self._world.network.partition([machine.node.name], names))

    def _cut_off(
        self, sources: list[str], targets: list[str], *, is_one_way: bool, seconds: float
    ) -> None:
        if is_one_way:
            self._sometimes.reached("one-way partition")
        heal = self._world.network.partition(sources, targets, one_way=is_one_way)
        self.later(seconds, heal)

    def _slow_link(self, fault: Fault) -> None:
        """Delay one direction between two nodes, by up to seconds."""
        random = Random(fault.dice)
        source, target = random.sample(self._machines.names, 2)
        network = self._world.network
        link = network.link(source, target)
        link.quality = LinkQuality(delay_mean_s=10 ** random.uniform(-1.5, 0.3))

        def speed_up() -> None:
            link.quality = network.quality

        self.later(3 * fault.duration, speed_up)

    def _break_connections(self, fault: Fault) -> None:
        name = self._any(fault).node.name
        for other in self._world.nodes:
            if other != name:
                self._world.network.break_connections(name, other)

    def _jump_clock(self, fault: Fault) -> None:
        seconds = (fault.dice * 1000 % 1 - 0.5) * self._clock_jump_s
        if seconds < 0:
            self._sometimes.reached("clock went back")
        self._any(fault).node.wall_clock.jump(seconds)


def _is_metadata_log(path: str) -> bool:
    return path.startswith(_METADATA) and path.endswith(".log")
