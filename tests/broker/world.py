"""A broker in this process: real code over a disk and a network in memory, on virtual time.

Time stands still until a test lets it pass, and work that would run in a thread runs at once,
unless a test holds it.
"""

from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import NamedTuple, TypeVar, final

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.memory_network import MemoryNetwork
from tests.broker.raw_client import RawClient
from tests.cluster_secret import SECRET
from tests.simulation.machine.disk_contents import contents
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.broker.config.broker_config import BrokerConfig, resolve_config
from tidelog.broker.server import Broker, open_broker
from tidelog.coordinator.bootstrap.open_node import METADATA_DIRECTORY
from tidelog.logstore.flush import FlushJob
from tidelog.logstore.segments.log_slice import LogSlice
from tidelog.wire.env.env import Env, SecureNetwork
from tidelog.wire.env.real.real_env import never
from tidelog.wire.transport.node_rpc import NodeDialer
from tidelog.wire.transport.rpc import RpcConnection, open_rpc

Result = TypeVar("Result")

ADDRESS = ("broker", 8433)
START_MS = 1_800_000_000_000
"""Time of day when a test begins; some time in 2027."""


class Event(NamedTuple):
    """An event that the broker reported to its probe."""

    name: str
    fields: dict[str, object]


@final
class VirtualClock:
    """The time of day: follows trio's clock, and jumps when a test sets it."""

    def __init__(self) -> None:
        self.offset_ms = START_MS
        self.defect: Exception | None = None
        """Call instead of a reading of the clock, for tests of defects."""

    def now_ms(self) -> int:
        if self.defect is not None:
            raise self.defect
        return self.offset_ms + int(trio.current_time() * 1000)


@final
class InlineWork:
    """Runs work at once in the loop; see `wire.env.env.ThreadPool`.

    Syncs of partitions can be held, as if the disk were slow: `hold_syncs`, then `let_sync` one by
    one or `let_all_sync`. Those of the metadata are not held. Reads from the disk can be held too,
    and all work of any kind.
    """

    def __init__(self) -> None:
        self.sync_count = 0
        """Number of syncs of partitions that were begun, including held ones."""
        self.brief_count = 0
        """Number of jobs of any kind that were marked as brief."""
        self.read_defect: Exception | None = None
        """Call instead of a read from the disk, for tests of defects."""
        self._held_syncs: deque[trio.Event] | None = None
        self._held_reads: deque[trio.Event] | None = None
        self._held: deque[trio.Event] | None = None

    @property
    def held_count(self) -> int:
        return len(self._held_syncs or ())

    def hold_syncs(self) -> None:
        self._held_syncs = deque()

    def let_sync(self) -> None:
        assert self._held_syncs, "no sync is held"
        self._held_syncs.popleft().set()

    def let_all_sync(self) -> None:
        held, self._held_syncs = self._held_syncs, None
        for event in held or ():
            event.set()

    def take_held_syncs(self) -> list[trio.Event]:
        """Stop holding; return the events that release held syncs, in order."""
        held, self._held_syncs = self._held_syncs, None
        return list(held or ())

    def hold_reads(self) -> None:
        self._held_reads = deque()

    def let_all_read(self) -> None:
        held, self._held_reads = self._held_reads, None
        for event in held or ():
            event.set()

    def hold_work(self) -> None:
        self._held = deque()

    def let_one(self) -> None:
        assert self._held, "nothing is held"
        self._held.popleft().set()

    def let_all(self) -> None:
        held, self._held = self._held, None
        for event in held or ():
            event.set()

    def set_held_aside(self) -> trio.Event:
        """Stop holding new work; return the event that releases the held work."""
        held, self._held = self._held, None
        assert held is not None
        (event,) = held
        return event

    async def __call__(self, work: Callable[[], Result], *, is_brief: bool = False) -> Result:
        await trio.lowlevel.checkpoint()
        self.brief_count += is_brief
        owner = getattr(work, "__self__", None)
        held = self._held
        if isinstance(owner, FlushJob) and vars(owner)["_directory"] != METADATA_DIRECTORY:
            self.sync_count += 1
            held = self._held_syncs
        elif isinstance(owner, LogSlice):
            held = self._held_reads
            if self.read_defect is not None:
                raise self.read_defect
        if held is not None:
            event = trio.Event()
            held.append(event)
            with trio.CancelScope(shield=True):  # A thread is not cancelled.
                await event.wait()
        return work()


@final
class World:
    """One machine with a broker on it, and the clients around it."""

    def __init__(self, time: MockClock, disk: FaultyDisk | None = None) -> None:
        """Start with an empty disk, or with `disk`; `time` is the clock of the test."""
        self._time = time
        self.disk = FaultyDisk() if disk is None else disk
        self.network = MemoryNetwork()
        self.clock = VirtualClock()
        self.work = InlineWork()
        self.events: list[Event] = []
        self.key_file = ""
        """Text of the file with the master keys of the broker."""
        self.secure_network: SecureNetwork | None = None
        """The network of the broker with TLS, if it has a certificate."""
        self._random = Random(7)

    @property
    def env(self) -> Env:
        """The environment of the broker."""
        return Env(
            clock=self.clock,
            network=self.network,
            random=self._random,
            run_in_thread=self.work,
            probe=self._note,
            buggify=never,
            secure_network=self.secure_network,
        )

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, with all events of that time."""
        self._time.jump(seconds)
        await settle()

    def told(self, name: str) -> list[dict[str, object]]:
        """Return the fields of all events of this name."""
        return [event.fields for event in self.events if event.name == name]

    def segments(self) -> list[tuple[str, bytes]]:
        """Return the segment files of all partitions with their bytes, by path."""
        found = contents(self.disk, "topics")
        return [(path, data) for path, data in found.items() if data and path.endswith(".log")]

    def after_crash(self) -> "World":
        """Return the world after the end of the process: all written bytes."""
        return self._next(self.disk.kill())

    def after_power_cut(self, seed: int) -> "World":
        """Return the world after a power cut: all synced bytes, and a random part of the others."""
        return self._next(self.disk.power_cut(Random(seed)))

    @asynccontextmanager
    async def broker(self, **settings: object) -> AsyncGenerator[Broker]:
        """Run a broker; it stops cleanly at the end of the block."""
        async with open_broker(
            config(**settings),
            self.env,
            self.disk,
            secret=SECRET,
            master_source=self._read_key_file,
        ) as broker:
            yield broker

    @asynccontextmanager
    async def doomed_broker(self, **settings: object) -> AsyncGenerator[Broker]:
        """Run a broker; at the end of the block it ends as in a crash."""
        async with trio.open_nursery() as nursery:
            started: list[Broker] = []
            is_up = trio.Event()

            async def run() -> None:
                async with open_broker(
                    config(**settings),
                    self.env,
                    self.disk,
                    secret=SECRET,
                    master_source=self._read_key_file,
                ) as broker:
                    started.append(broker)
                    is_up.set()
                    await trio.sleep_forever()

            nursery.start_soon(run)
            await is_up.wait()
            yield started[0]
            self.work.let_all_sync()
            nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[RpcConnection]:
        """Connect and say hello, until the end of the block."""
        async with open_rpc(
            self.network, *ADDRESS, client_id="test", client_version="0"
        ) as connection:
            yield connection

    @asynccontextmanager
    async def node(self, node_id: int, *, secret: bytes = SECRET) -> AsyncGenerator[RpcConnection]:
        """Connect as another node of the cluster, until the end of the block."""
        dialer = NodeDialer(self.network, self._random.randbytes, node_id=node_id, secret=secret)
        async with dialer.open(*ADDRESS, name="test") as connection:
            yield connection

    async def raw_client(self) -> RawClient:
        """Connect and say nothing."""
        return RawClient(await self.network.connect(*ADDRESS))

    async def _read_key_file(self) -> str:
        return self.key_file

    def _note(self, event: str, **fields: object) -> None:
        self.events.append(Event(event, fields))

    def _next(self, disk: FaultyDisk) -> "World":
        world = World(self._time, disk)
        world.clock.offset_ms = self.clock.offset_ms
        world._random = self._random
        world.key_file = self.key_file
        return world


def config(**settings: object) -> BrokerConfig:
    """Return settings for a test; all others have their defaults."""
    flags = {"listen": "{}:{}".format(*ADDRESS), **settings}
    return resolve_config(file=None, environment={}, flags=flags).config


async def settle() -> None:
    """Run all tasks that can run without time passing."""
    await wait_all_tasks_blocked()
