"""One simulated process: its access to the world, and its end.

When a process ends, its files and sockets die before its tasks notice: `finally` blocks cannot
write, flush or close connections cleanly, like those of a real dead process.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final, final

import trio

from tests.simulation.machine.blocking_call import Threads
from tests.simulation.machine.clock import SimulatedClock, WallClock
from tests.simulation.machine.faulty_disk import FaultyDisk, StaleHandleError
from tests.simulation.machine.network import Host, ProcessNetwork, SimulatedNetwork
from tests.simulation.machine.random_streams import RandomStreams
from tests.simulation.machine.scheduler import ProcessTasks
from tests.simulation.machine.thread_pool import DiskSpeed, SimulatedThreadPool
from tests.simulation.trace import Trace
from tidelog.wire.env.env import Env

Observer = Callable[[str, str, Mapping[str, object]], None]
"""Receives every event: node name, event, fields. May raise to end the run."""


_RARITY: Final = {
    "connection abandoned": 0.02,
    "fetch abandoned": 0.02,
    "snapshot early": 0.1,
    "journal snapshot early": 0.2,
}
"""Factors for sites that must fire rarely, because they would prevent all progress."""


@final
class BuggifySites:
    """The rare branches that are taken in a run; see `wire.env.env.Buggify`."""

    def __init__(self, streams: RandomStreams) -> None:
        """Take no branch until the rates are set."""
        self.site_rate = 0.0
        """Probability that a site is active in this run."""
        self.fire_rate = 0.0
        """Probability that an active site fires when it is asked."""
        self.on_fired: Callable[[str], None] | None = None
        """Callback with the site of every branch that is taken."""
        self._streams = streams
        self._thresholds: dict[str, float] = {}

    def fires(self, site: str, random: Random) -> bool:
        """Return whether to take the branch at `site` this time."""
        if not self.site_rate:
            return False
        if site not in self._thresholds:
            self._thresholds[site] = self._streams.stream(f"buggify {site}").random()
        if self._thresholds[site] >= self.site_rate:
            return False
        if random.random() >= self.fire_rate * _RARITY.get(site, 1.0):
            return False
        if self.on_fired is not None:
            self.on_fired(site)
        return True


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """Shared context of all processes of a world."""

    clock: SimulatedClock
    streams: RandomStreams
    trace: Trace
    network: SimulatedNetwork
    threads: Threads
    buggify: BuggifySites
    observers: list[Observer]


@final
class Process:
    """A program that runs on a node, from its start to its end."""

    def __init__(
        self,
        context: ProcessContext,
        host: Host,
        disk: FaultyDisk,
        *,
        wall_clock: WallClock,
        number: int,
        disk_speed: DiskSpeed,
    ) -> None:
        """Create process `number` of its node."""
        streams, name = context.streams, f"{host.name}#{number}"
        self.name = name
        self.is_dead = False
        self.ended = trio.Event()
        """Set when the process has ended, by itself or by a fault."""
        self._node_name = host.name
        self._context = context
        self._disk = disk
        self._wall_clock = wall_clock
        self._scope = trio.CancelScope()
        self._tasks = ProcessTasks()
        self._hold_count = 0
        self._stop_count = 0
        self._network = ProcessNetwork(context.network, host, self.check_alive)
        self._thread_pool = SimulatedThreadPool(
            context.clock,
            context.threads,
            streams.stream(f"threads {name}"),
            speed=disk_speed,
        )
        self._buggify_random = streams.stream(f"buggify of {name}")
        self.env = Env(
            clock=self,
            network=self._network,
            random=streams.stream(f"process {name}"),
            run_in_thread=self._thread_pool,
            probe=self._probe,
            buggify=self._buggify,
        )

    @property
    def disk(self) -> FaultyDisk:
        """The disk of the node, as long as this process runs."""
        return self._disk

    @property
    def is_held(self) -> bool:
        """Whether its tasks are stopped now."""
        return self._hold_count > 0

    def now_ms(self) -> int:
        """Return Unix time in milliseconds; see `wire.env.env.Clock`."""
        self.check_alive()
        return self._wall_clock.now_ms()

    def check_alive(self) -> None:
        """Raise `StaleHandleError` in code of a dead process."""
        if self.is_dead:
            raise StaleHandleError(f"{self.name} is dead")

    async def run(self, program: "Program") -> None:
        """Run `program` until it returns or the process is ended."""
        self._tasks.adopt_this_task()
        try:
            with self._scope:
                await program(self)
        except BaseException:
            # Exceptions of a dead process have no effect.
            if not self.is_dead:
                raise

    def end(self, *, by_power_cut: bool) -> None:
        """End at once; the disk's handle is dead already."""
        self.is_dead = True
        if by_power_cut:
            self._network.vanish()
        else:
            self._network.release()
        self._thread_pool.end(StaleHandleError(f"{self.name} is dead"))
        self._tasks.release()
        self._scope.cancel()
        self.ended.set()

    def hold(self, *, threads_too: bool) -> None:
        """Stop all tasks, and all threads if told so; calls are counted."""
        self._hold_count += 1
        self._tasks.hold()
        if threads_too:
            self._stop_count += 1
            self._thread_pool.stop()

    def resume(self, *, threads_too: bool) -> None:
        """Undo one `hold`."""
        if self.is_dead:
            return
        self._hold_count -= 1
        if not self._hold_count:
            self._tasks.release()
        if threads_too:
            self._stop_count -= 1
            if not self._stop_count:
                self._thread_pool.go_on()

    def _probe(self, event: str, **fields: object) -> None:
        self.check_alive()
        shown = " ".join(f"{name}={value!r}" for name, value in fields.items())
        self._context.trace.note(self.name, f"{event} {shown}")
        for observer in self._context.observers:
            observer(self._node_name, event, fields)

    def _buggify(self, site: str) -> bool:
        self.check_alive()
        return self._context.buggify.fires(site, self._buggify_random)


Program = Callable[[Process], Awaitable[None]]
"""The program of a process: a broker, or a client that only uses `env`."""
