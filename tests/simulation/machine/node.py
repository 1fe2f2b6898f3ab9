"""A simulated machine: its disk, its clock, its host in the network, and one process at a time.

A kill and a power cut are different. A killed process leaves its kernel running: its writes are in
the page cache, its sent bytes are delivered, and its connections are closed. A machine without
power loses unsynced bytes, and its peers get no packet from it.
"""

from collections.abc import Callable
from typing import final
from zlib import crc32

import trio

from tests.simulation.machine.clock import WallClock, quantised
from tests.simulation.machine.disk_contents import contents
from tests.simulation.machine.faulty_disk import FaultyDisk
from tests.simulation.machine.process import Process, ProcessContext, Program
from tests.simulation.machine.thread_pool import DiskSpeed, block_for_disk

DiskWatcher = Callable[[str, str], None]
"""Receives an operation and its path before it takes effect; see `Node.disk_watcher`."""


@final
class Node:
    """A machine.

    Invariant: at most one process runs, and only while the machine has power.
    """

    def __init__(
        self, context: ProcessContext, nursery: trio.Nursery, name: str, *, skew_s: float = 0.0
    ) -> None:
        """Start with power and an empty disk; `skew_s` is the lead of the wall clock."""
        self.name = name
        self.wall_clock = WallClock(context.clock.current_time, skew_s=skew_s)
        self.disk_speed = DiskSpeed()
        self.disk_watcher: DiskWatcher | None = None
        """Hook for aimed faults. It may raise an `OSError`; to end the process, it schedules that
        on the clock at once, which is before a thread's call has any effect."""
        self.process: Process | None = None
        """The running process, `None` if there is none."""
        self.process_count = 0
        self._context = context
        self._nursery = nursery
        self._host = context.network.add_host(name)
        self._disk = FaultyDisk(root=f"/{name}")
        self._disk.failed_sync_random = context.streams.stream(f"failed syncs of {name}")
        self._disk_random = context.streams.stream(f"disk {name}")
        self._power_random = context.streams.stream(f"power cuts of {name}")

    @property
    def disk(self) -> FaultyDisk:
        """The disk, as the running process sees it, or as the next one will find it."""
        return self._disk

    def start(self, program: Program) -> Process:
        """Start a process, after a boot of the machine if it is off."""
        assert self.process is None, f"{self.process} runs on {self.name} already"
        if not self._host.is_on:
            self._host.is_on = True
            self._context.network.power_changed(self._host)
        self.process_count += 1
        self._disk.before_call = self._before_disk_call
        process = Process(
            self._context,
            self._host,
            self._disk,
            wall_clock=self.wall_clock,
            number=self.process_count,
            disk_speed=self.disk_speed,
        )
        self.process = process
        self._note("starts")
        self._nursery.start_soon(self._run, process, program, name=process.name)
        return process

    def kill(self) -> None:
        """Kill the process, if one runs, as SIGKILL does."""
        if self.process is not None:
            self._note("is killed")
            self._end_process()

    def cut_power(self) -> None:
        """Cut the power; the machine is off until the next `start`."""
        self._note("loses its power")
        process, self.process = self.process, None
        self._disk = self._disk.power_cut(self._power_random)
        # The page cache is empty; a file is cached once it has been read.
        self._disk.cold_paths.update(contents(self._disk))
        self._host.is_on = False
        if process is not None:
            process.end(by_power_cut=True)
        self._context.network.power_changed(self._host)
        self._note_disk()

    def pause(self, seconds: float) -> Callable[[], None]:
        """Stop the process for a while, as SIGSTOP does; the kernel continues.

        Returns a function that ends the pause early; a second or a late call has no effect.
        """
        return self._hold(seconds, threads_too=True)

    def stall_loop(self, seconds: float) -> Callable[[], None]:
        """Keep the loop from running for a while; threads continue. Returns like `pause`."""
        return self._hold(seconds, threads_too=False)

    def stall_disk(self, seconds: float) -> None:
        """Stall all disk calls of threads for so long; 0 ends an earlier stall."""
        self._note(f"has a disk that stalls for {seconds:.3f} s")
        clock = self._context.clock
        self.disk_speed.stalled_until = clock.now + quantised(seconds)

    def wipe_disk(self) -> None:
        """Replace the disk by an empty one; the process must have ended."""
        assert self.process is None, "a disk is replaced while nothing runs"
        self._note("gets a new disk")
        self._disk = FaultyDisk(root=self._disk.root, capacity_bytes=self._disk.capacity_bytes)

    def put_disk_back(self, copied: FaultyDisk) -> None:
        """Replace the disk by an earlier copy of it; the process must have ended."""
        assert self.process is None, "a disk is replaced while nothing runs"
        self._note("gets an earlier copy of its disk")
        copied.capacity_bytes = self._disk.capacity_bytes
        self._disk = copied

    def fail_accepts(self, *, fail: bool) -> None:
        """Let `accept` fail for lack of file descriptors, or succeed again."""
        self._host.descriptors_are_gone = fail

    async def _run(self, process: Process, program: Program) -> None:
        await process.run(program)
        if self.process is process:
            self._note("exits")
            self._end_process()

    def _end_process(self) -> None:
        process, self.process = self.process, None
        assert process is not None
        self._disk = self._disk.kill()
        process.end(by_power_cut=False)
        self._note_disk()

    def _hold(self, seconds: float, *, threads_too: bool) -> Callable[[], None]:
        process = self.process
        if process is None:
            return lambda: None
        what = "is paused" if threads_too else "has a loop that stalls"
        self._note(f"{what} for {seconds:.3f} s")
        process.hold(threads_too=threads_too)
        is_held = True

        def resume() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                process.resume(threads_too=threads_too)

        self._context.clock.call_later(seconds, resume)
        return resume

    def _before_disk_call(self, operation: str, path: str) -> None:
        if self.disk_watcher is not None:
            self.disk_watcher(operation, path)
        if self.disk_speed.mean_s(operation):
            clock = self._context.clock
            block_for_disk(clock, self.disk_speed, self._disk_random, operation=operation)
            self._note(f"disk {operation} {path}")
            if operation == "read_at":
                self._disk.cold_paths.discard(path)

    def _note(self, what: str) -> None:
        self._context.trace.note(self.name, what)

    def _note_disk(self) -> None:
        found = contents(self._disk).items()
        digest = crc32(repr(sorted(found, key=lambda entry: entry[0])).encode())
        self._note(f"disk holds {digest:08x} in {len(found)} names")
