"""Faults of a plan, and their injector.

Some faults are aimed: they wait for a moment that lasts microseconds, and strike in it.
"""

import errno
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from random import Random
from typing import final

from tests.simulation.broker.bit_rot import (
    checkpoints,
    first_base_offset,
    provable_batches,
    provable_sectors,
    rebuilt_bytes,
)
from tests.simulation.broker.clients import Clients, Role
from tests.simulation.broker.plans import Fault, Plan
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.checkers.run_history import DamageReported, RunHistory
from tests.simulation.machine.broker_host import HOST, TOPIC, BrokerHost
from tests.simulation.machine.faulty_disk import FaultyDisk
from tests.simulation.machine.file_tree import SECTOR_BYTES, os_error
from tests.simulation.machine.link import LinkQuality
from tests.simulation.machine.world import World

_TOPIC_CHANGES = (
    ("write_at", "metadata/", "crash in metadata"),
    ("sync", "metadata/", "crash in metadata"),
    ("make_directory", "topics/", "crash in creation"),
    ("rename", "topics/", "crash in deletion"),
    ("remove_directory", "deleted", "crash in deletion"),
)
_NAMING = (
    "create", "make_directory", "rename", "truncate", "remove", "remove_directory",
    "sync_directory",
)  # fmt: skip
_ROOMY_BYTES = 1 << 50
_CUTS_AFTER_STOP = 0.5
_WAITS_S = 0.1
"""Seconds until a fault checks again for a target, if it has none yet."""
_SURVIVABLE = ("topics/", "metadata/", "deleted")
_SHORT_S = 0.002
"""Maximum delay of a crash after the moment that it is aimed at, in seconds."""

Aim = Callable[[str, str], bool]
"""Receives a disk call before it takes effect; returns whether this is the moment to strike."""


@final
class FaultInjector:
    """Injects the faults of one plan."""

    def __init__(
        self,
        world: World,
        host: BrokerHost,
        run_history: RunHistory,
        *,
        sometimes: Sometimes,
        clients: Clients,
    ) -> None:
        """Attack `host` and the clients."""
        self._world = world
        self._host = host
        self._run_history = run_history
        self._sometimes = sometimes
        self._clients = clients
        self._aims: list[Aim] = []
        self._heals: list[Callable[[], None]] = []
        self._corrupted_partitions: set[int] = set()
        self._is_over = False
        self._normal_sync_s = host.node.disk_speed.sync_mean_s
        host.node.disk_watcher = self._watch
        self._effects: Mapping[str, Callable[[Fault], None]] = {
            "kill": lambda _: host.kill(),
            "cut_power": lambda _: host.cut_power(),
            "cut_power_while_syncing": self._cut_power_while_syncing,
            "cut_power_after_append": partial(self._crash_after_append, crash=host.cut_power),
            "kill_after_append": partial(self._crash_after_append, crash=host.kill),
            "crash_in_roll": self._crash_in_roll,
            "crash_in_checkpoint": self._crash_in_checkpoint,
            "crash_in_swap": self._crash_in_swap,
            "crash_in_topic_change": self._crash_in_topic_change,
            "stop": self._stop,
            "pause": partial(self._hold, hold=host.node.pause),
            "stall_loop": partial(self._hold, hold=host.node.stall_loop),
            "stall_disk": lambda fault: self._stall_disk(fault.duration),
            "slow_disk": self._slow_disk,
            "fail_sync": self._fail_sync,
            "fail_write": self._fail_write,
            "fail_read": self._fail_read,
            "fail_names": self._fail_names,
            "fill_disk": self._fill_disk,
            "rot": self._rot,
            "rot_checkpoint": self._rot_checkpoint,
            "rot_frame": self._rot_frame,
            "lose_sector": self._lose_sector,
            "partition": self._partition,
            "lose_replies": self._lose_replies,
            "break_while_syncing": self._break_while_syncing,
            "break_connections": self._break_connections,
            "jump_clock": self._jump_clock,
            "kill_client": lambda fault: clients.kill(fault.dice),
            "delete_records": clients.administrate,
            "alter_topic": clients.administrate,
            "add_partitions": clients.administrate,
            "trespass": lambda fault: clients.trespass(fault.dice),
            "no_descriptors": self._no_descriptors,
        }

    def begin(self, plan: Plan) -> None:
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
        self._spoil_clocks(plan)
        self._world.buggify.site_rate = plan.buggify_rate
        self._world.buggify.fire_rate = 0.25
        self._world.buggify.on_fired = self._sometimes.forced
        for fault in plan.faults:
            self._world.clock.call_later(fault.at, partial(self._strike, fault))

    def _spoil_clocks(self, plan: Plan) -> None:
        random = self._world.streams.stream("clocks")
        for node in self._world.nodes.values():
            node.wall_clock.jump(random.uniform(-1, 1) * plan.clock_error_s)
            node.wall_clock.drift(1 + random.uniform(-1, 1) * plan.clock_drift)

    def end(self) -> None:
        """Revert all faults except corrupt bytes."""
        self._world.trace.note("fault injector", "ends")
        self._is_over = True
        self._aims.clear()
        for heal in self._heals:
            heal()
        self._host.keep_power()
        self._world.network.set_quality(LinkQuality())
        self._world.buggify.site_rate = 0.0

    def _strike(self, fault: Fault) -> None:
        if not self._is_over:
            self._world.trace.note("fault injector", f"{fault.kind} {fault.duration} {fault.dice}")
            self._effects[fault.kind](fault)

    def _strike_later(self, seconds: float, strike: Callable[[], None]) -> None:
        """Strike after a delay, unless the faults are over by then."""

        def strike_in_time() -> None:
            if not self._is_over:
                strike()

        self._world.clock.call_later(seconds, strike_in_time)

    def _watch(self, operation: str, path: str) -> None:
        for aim in list(self._aims):
            try:
                is_reached = aim(operation, path)
            except OSError:
                self._aims.remove(aim)
                raise
            if is_reached:
                self._aims.remove(aim)

    def _later(self, seconds: float, heal: Callable[[], None]) -> None:
        """Heal after a delay, and at the end in any case; a second healing is harmless."""
        self._heals.append(heal)
        self._world.clock.call_later(seconds, heal)

    def _cut_power_while_syncing(self, fault: Fault) -> None:
        def aim(operation: str, path: str) -> bool:
            if operation != "sync" or not path.endswith(".log"):
                return False
            delay_s = fault.dice * self._host.node.disk_speed.sync_mean_s
            self._strike_later(delay_s, self._host.cut_power)
            return True

        self._aims.append(aim)

    def _crash_after_append(self, _: Fault, *, crash: Callable[[], None]) -> None:
        def aim(operation: str, path: str) -> bool:
            if operation != "write_at" or not _is_of_topic(path, ".log"):
                return False
            self._sometimes.reached("crash after append")
            self._strike_later(0, crash)
            return True

        self._aims.append(aim)

    def _crash_in_roll(self, fault: Fault) -> None:
        def aim(operation: str, path: str) -> bool:
            if operation != "create" or not _is_of_topic(path, ".log"):
                return False
            self._sometimes.reached("crash in roll")
            crash = self._host.kill if fault.dice < 0.2 else self._host.cut_power
            self._strike_later(fault.dice * _SHORT_S, crash)
            return True

        self._aims.append(aim)

    def _crash_in_swap(self, fault: Fault) -> None:
        """Crash during the write of a cleaned segment, or in the few calls that swap it in."""
        wanted = "write_at" if fault.dice < 0.2 else "sync" if fault.dice < 0.4 else "rename"

        def aim(operation: str, path: str) -> bool:
            if operation != wanted or not _is_of_topic(path, ".cleaned.tmp"):
                return False
            self._sometimes.reached("crash in swap")
            crash = self._host.kill if fault.dice % 0.2 < 0.04 else self._host.cut_power
            sync_s = self._host.node.disk_speed.sync_mean_s
            self._strike_later(fault.dice % 0.1 * 40 * sync_s, crash)
            return True

        self._aims.append(aim)

    def _crash_in_checkpoint(self, fault: Fault) -> None:
        wanted = "rename" if fault.dice < 0.5 else "sync"

        def aim(operation: str, path: str) -> bool:
            if operation != wanted or not _is_of_topic(path, "checkpoint.tmp"):
                return False
            self._sometimes.reached("crash in checkpoint")
            is_kill = fault.dice % 0.25 < 0.05
            crash = self._host.kill if is_kill else self._host.cut_power
            self._strike_later(fault.dice % 0.1 * _SHORT_S, crash)
            return True

        self._aims.append(aim)

    def _crash_in_topic_change(self, fault: Fault) -> None:
        wanted, beginning, probe = _TOPIC_CHANGES[int(fault.dice * len(_TOPIC_CHANGES))]

        def aim(operation: str, path: str) -> bool:
            if operation != wanted or not path.startswith(beginning):
                return False
            self._sometimes.reached(probe)
            crash = self._host.kill if fault.dice % 0.1 < 0.02 else self._host.cut_power
            self._strike_later(fault.dice % 0.01 * _SHORT_S * 100, crash)
            return True

        self._aims.append(aim)

    def _stop(self, fault: Fault) -> None:
        """Stop the broker cleanly a moment after an append."""

        def aim(operation: str, path: str) -> bool:
            if operation != "write_at" or not _is_of_topic(path, ".log"):
                return False
            stop = partial(self._host.stop, cuts_power=fault.dice < _CUTS_AFTER_STOP)
            self._strike_later(fault.dice % 0.1, stop)
            return True

        self._aims.append(aim)

    def _hold(self, fault: Fault, *, hold: Callable[[float], Callable[[], None]]) -> None:
        self._run_history.held_up(self._world.clock.now + fault.duration)
        self._heals.append(hold(fault.duration))

    def _stall_disk(self, seconds: float) -> None:
        self._run_history.held_up(self._world.clock.now + seconds)
        self._host.node.stall_disk(seconds)
        self._heals.append(lambda: self._host.node.stall_disk(0.0))

    def _slow_disk(self, fault: Fault) -> None:
        speed = self._host.node.disk_speed
        speed.sync_mean_s = max(self._normal_sync_s, fault.dice * 0.5)
        last_sync_s = 10 * speed.sync_mean_s
        self._run_history.held_up(self._world.clock.now + fault.duration + last_sync_s)
        self._later(fault.duration, self._speed_disk_up)

    def _speed_disk_up(self) -> None:
        self._host.node.disk_speed.sync_mean_s = self._normal_sync_s

    def _fail_sync(self, fault: Fault) -> None:
        remaining = int(fault.dice * 10)

        def aim(operation: str, path: str) -> bool:
            nonlocal remaining
            if operation != "sync":
                return False
            remaining -= 1
            if remaining >= 0:
                return False
            self._run_history.disk_failed(path)
            self._host.sync_failed()
            raise os_error(errno.EIO, path)

        self._aims.append(aim)

    def _fail_write(self, _: Fault) -> None:
        def aim(operation: str, path: str) -> bool:
            if operation != "write_at" or not _is_of_topic(path, ".log"):
                return False
            self._run_history.disk_failed(path)
            raise os_error(errno.EIO, path)

        self._aims.append(aim)

    def _fail_read(self, fault: Fault) -> None:
        remaining = int(fault.dice * 10)

        def aim(operation: str, path: str) -> bool:
            nonlocal remaining
            if operation != "read_at" or not path.startswith(("topics/", "metadata/")):
                return False
            remaining -= 1
            if remaining >= 0:
                return False
            self._run_history.disk_failed(path)
            raise os_error(errno.EIO, path)

        self._aims.append(aim)

    def _fail_names(self, fault: Fault) -> None:
        """Fail a call that changes names, or the length of a file."""
        wanted = Random(fault.dice).choice(_NAMING)

        def aim(operation: str, path: str) -> bool:
            if operation != wanted or not path.startswith(_SURVIVABLE):
                return False
            self._run_history.disk_failed(path)
            self._sometimes.reached("name failed")
            raise os_error(errno.EIO, path)

        self._aims.append(aim)

    def _fill_disk(self, fault: Fault) -> None:
        disk = self._host.node.disk
        disk.capacity_bytes = _ROOMY_BYTES
        used_bytes = _ROOMY_BYTES - disk.room_bytes()
        disk.capacity_bytes = used_bytes + int(fault.dice * 2000)
        self._run_history.disk_filled()
        self._later(fault.duration, self._free_disk)

    def _free_disk(self) -> None:
        self._host.node.disk.capacity_bytes = None
        self._run_history.disk_freed()

    def _rot(self, fault: Fault) -> None:
        """Flip one bit of a durable batch while the broker is down."""
        self._host.kill()
        disk = self._host.node.disk
        batches = [
            batch
            for batch in provable_batches(disk, TOPIC)
            if batch.partition not in self._corrupted_partitions
        ]
        if not batches:
            return
        path, partition, position, header = batches[int(fault.dice * len(batches))]
        self._corrupted_partitions.add(partition)
        self._run_history.corrupted(
            DamageReported(partition, header.base_offset, header.next_offset)
        )
        bit = int(fault.dice * 1_000_003) % (header.size * 8)
        self._flip(disk, path, position * 8 + bit)

    def _lose_sector(self, fault: Fault) -> None:
        """Replace a durable sector while the broker is down.

        Either the write never reached the disk, and the sector has zeros; or a write to an earlier
        position of the file went there.
        """
        self._host.kill()
        disk = self._host.node.disk
        sectors = [
            sector
            for sector in provable_sectors(disk, TOPIC)
            if sector.partition not in self._corrupted_partitions
        ]
        if not sectors:
            return
        path, partition, position, offset, next_offset = sectors[int(fault.dice * len(sectors))]
        self._corrupted_partitions.add(partition)
        self._run_history.corrupted(DamageReported(partition, offset, next_offset))
        self._sometimes.reached("sector lost")
        earlier_count = position // SECTOR_BYTES
        other = int(fault.dice * 1_000_003) % (2 * earlier_count + 1) * SECTOR_BYTES
        data = bytes(SECTOR_BYTES)
        if other < position:
            data = disk.durable_bytes(path)[other : other + SECTOR_BYTES]
        self._world.trace.note(HOST, f"has another sector at {position} of {path}")
        disk.damage(path, position, data)

    def _rot_checkpoint(self, fault: Fault) -> None:
        self._host.kill()
        disk = self._host.node.disk
        paths = checkpoints(disk)
        if paths:
            path = paths[int(fault.dice * len(paths))]
            bit = int(fault.dice * 1_000_003) % (len(disk.durable_bytes(path)) * 8)
            directory = path.rpartition("/")[0]
            partition = self._run_history.numbers.of_directory(directory)
            assert partition is not None, "checkpoints are those of partitions"
            self._run_history.checkpoint_corrupted(partition, first_base_offset(disk, directory))
            self._flip(disk, path, bit)

    def _rot_frame(self, fault: Fault) -> None:
        """Flip a bit outside of batches: in headers and footers of segments, or in indexes."""
        self._host.kill()
        disk = self._host.node.disk
        random = Random(fault.dice)
        frames = rebuilt_bytes(disk, TOPIC)
        if frames:
            path, start, end = random.choice(frames)
            self._sometimes.reached("frame corrupted")
            self._flip(disk, path, random.randrange(start * 8, end * 8))

    def _flip(self, disk: FaultyDisk, path: str, bit: int) -> None:
        self._world.trace.note(HOST, f"has a bit flipped: {bit} of {path}")
        disk.flip_bit(path, bit // 8, bit % 8)

    def _partition(self, fault: Fault) -> None:
        others = [
            name
            for name, node in self._world.nodes.items()
            if name != HOST and node.process is not None
        ]
        if self._host.node.process is None or not others:
            # Without a running broker and a client, the cut of a link has no effect.
            self._world.clock.call_later(_WAITS_S, partial(self._strike, fault))
            return
        other = others[int(fault.dice * len(others))]
        side = int(fault.dice * 1000) % 3
        ends = ([HOST], [other]) if side else ([other], [HOST])
        is_one_way = side < 2
        if is_one_way:
            self._sometimes.reached("one-way partition")
        self._cut_off(*ends, is_one_way=is_one_way, seconds=fault.duration * 2)

    def _cut_off(
        self, sources: list[str], targets: list[str], *, is_one_way: bool, seconds: float
    ) -> None:
        heal = self._world.network.partition(sources, targets, one_way=is_one_way)
        is_healed = False

        def heal_once() -> None:
            nonlocal is_healed
            if not is_healed:
                is_healed = True
                heal()

        self._later(seconds, heal_once)

    def _lose_replies(self, fault: Fault) -> None:
        """Withhold all replies from a producer, from an append until its request times out."""
        names = self._clients.names(Role.PRODUCER)
        name = names[int(fault.dice * len(names))]
        seconds = 2.0 + fault.dice * 97 % 6

        def aim(operation: str, path: str) -> bool:
            if operation != "write_at" or not _is_of_topic(path, ".log"):
                return False
            self._cut_off([HOST], [name], is_one_way=True, seconds=seconds)
            return True

        self._aims.append(aim)

    def _break_while_syncing(self, fault: Fault) -> None:
        """Make clients resend batches that are not durable yet, and may never become durable."""

        def aim(operation: str, path: str) -> bool:
            if operation != "sync" or not _is_of_topic(path, ".log"):
                return False
            seconds = 0.5 + fault.duration
            self._stall_disk(seconds)
            self._strike_later(0, lambda: self._break_connections(fault))
            if fault.dice < 0.5:
                self._strike_later(seconds * 0.8, self._host.cut_power)
            return True

        self._aims.append(aim)

    def _break_connections(self, _: Fault) -> None:
        for name in self._world.nodes:
            if name != HOST:
                self._world.network.break_connections(HOST, name)

    def _jump_clock(self, fault: Fault) -> None:
        seconds = (fault.dice - 0.5) * 7200
        if seconds < 0:
            self._sometimes.reached("clock went back")
        self._host.node.wall_clock.jump(seconds)

    def _no_descriptors(self, fault: Fault) -> None:
        self._host.node.fail_accepts(fail=True)
        self._break_connections(fault)
        self._later(fault.duration, lambda: self._host.node.fail_accepts(fail=False))


def _is_of_topic(path: str, ending: str) -> bool:
    return path.startswith("topics/") and path.endswith(ending)
