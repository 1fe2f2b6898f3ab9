"""The broker of a test: in a thread of its own, on a free port, with data that are removed.

Shell: owns the thread and the data directory.
"""

import logging
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from secrets import token_bytes
from types import TracebackType
from typing import Final, Self, TypeVar, final

import trio

from tidelog import blocking
from tidelog.blocking.thread import TrioThread
from tidelog.client.consumer.fetch.record import Record
from tidelog.client.queue.inspect.peek import PeekedMessage
from tidelog.embedded import open_broker_with
from tidelog.testing.virtual_time import TICK_MS, CountingThreadPool, VirtualClock, settle, steps_of
from tidelog.wire.env.real.real_env import RealClock, real_env
from tidelog.wire.security.token import ID_BYTES, SECRET_BYTES, new_token

Result = TypeVar("Result")

_DEFAULTS: Final[Mapping[str, object]] = {
    "listen": "127.0.0.1:0",
    "maintenance_interval_ms": TICK_MS,
    # Members join a group at once, and partitions of a member that left are assigned at once.
    "group_consumer_heartbeat_interval_ms": 100,
    "group_initial_rebalance_delay_ms": 0,
    "group_replacement_delay_ms": 0,
    # Each `advance` takes some seconds of it.
    "group_consumer_session_timeout_ms": 300_000,
}
"""Settings of brokers in tests that differ from the defaults of brokers."""

_MEMORY: Final = Path("/dev/shm")  # noqa: S108  (a file system in memory)
_MEMORY_BYTES_MIN: Final = 1 << 30
"""Free bytes of a file system in memory that is used. In many containers it has 64 MiB."""
_PREFIX: Final = "tidelog-test-"
_PEEKED_MAX: Final = 100_000

_log = logging.getLogger("tidelog.event")
_brokers: list["EphemeralBroker"] = []
"""The brokers of this process that are not closed; they share the virtual time."""


@final
@dataclass(frozen=True, slots=True)
class _Running:
    """A broker that runs, in its thread."""

    address: str
    http_address: str
    scope: trio.CancelScope
    """Cancelled, the broker ends as in a crash."""
    pool: CountingThreadPool


@final
class EphemeralBroker:
    """A broker that a test starts, kills and restarts, and whose time it advances.

    All methods block, for milliseconds. Tests of any event loop may call them.
    """

    def __init__(
        self, settings: Mapping[str, object] | None = None, *, spare_dir: str = ""
    ) -> None:
        """Start the broker.

        Args:
            settings: Fields of the broker's configuration.
            spare_dir: Directory for the data if memory has no room for them; by default that of
                temporary files.

        Raises:
            ConfigError: A setting is not valid.
        """
        self._settings = {**_DEFAULTS, **(settings or {})}
        prefix = f"{_PREFIX}{os.getpid()}-"
        self.data_dir = tempfile.mkdtemp(prefix=prefix, dir=memory_directory() or spare_dir or None)
        """Directory of its data, until `close`."""
        self.token = _administrator(self.data_dir, self._settings)
        """Token of a user that may do everything; `None` unless `authentication` is required."""
        self._thread: TrioThread[_Running] | None = None
        self._client: blocking.Client | None = None
        self._is_closed = False
        # A thread that runs trio may not wait for another one; a test of pytest-trio is in one.
        self._waiter = ThreadPoolExecutor(1, "tidelog-test")
        _brokers.append(self)
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    @property
    def address(self) -> str:
        """`host:port` that clients connect to; it stays the same after a restart."""
        return str(self._settings["listen"])

    @property
    def http_address(self) -> str:
        """`host:port` of the HTTP server; empty unless `http_listen` is set."""
        return str(self._settings.get("http_listen", ""))

    @property
    def is_running(self) -> bool:
        """Whether the broker runs: it was not killed."""
        return self._thread is not None

    def start(self) -> None:
        """Start the broker on its data, unless it runs."""
        if self._thread is not None:
            return
        resource = _open(self.data_dir, self._settings)
        self._thread = TrioThread(resource, name="tidelog-broker", clock=VirtualClock())
        running = self._thread.resource
        self._settings["listen"] = running.address
        if running.http_address:
            self._settings["http_listen"] = running.http_address

    def kill(self) -> None:
        """End the broker as in a crash, until `start`: connections break, data stay.

        Acknowledged records are safe. The plugin starts a killed broker before the next test.
        """
        if self._thread is not None:
            self._thread.call_soon(self._thread.resource.scope.cancel)
            self._end(self._thread)

    def restart(self) -> None:
        """Stop the broker cleanly, if it runs, and start it on the same data and address."""
        if self._thread is not None:
            self._end(self._thread)
        self.start()

    def close(self) -> None:
        """End the broker, and remove its data. Closing twice is allowed."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._client is not None:
            self._client.close()
        self.kill()
        self._waiter.shutdown()
        shutil.rmtree(self.data_dir, ignore_errors=True)
        _brokers.remove(self)
        if not _brokers:
            RealClock.ahead_ms = 0

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass at once for all test brokers and clients of this process.

        Delays, visibility timeouts, retention, deduplication windows and transactions that end in
        this time have ended, and their consequences are carried out, when the call returns.
        Timeouts that a client measures itself do not move.

        Raises:
            ValueError: `seconds` is negative: time does not go back.
        """
        if seconds < 0:
            raise ValueError(f"cannot advance by {seconds} s: time does not go back")
        for step_ms in steps_of(round(seconds * 1000)):
            _settle_all()
            # In the thread of the broker, between two of its reads of its clocks.
            self._in_thread(partial(_add_time, step_ms))
        _settle_all()

    def create_topic(self, name: str, partitions: int = 1, **options: object) -> None:
        """Create a topic; `options` are those of `tidelog.Admin.create_topic`."""
        create: Callable[..., object] = self._connected().admin.create_topic
        self._wait(partial(create, name, partitions, **options))

    def create_queue(self, name: str, **options: object) -> None:
        """Create a queue; `options` are those of `tidelog.Admin.create_queue`."""
        create: Callable[..., object] = self._connected().admin.create_queue
        self._wait(partial(create, name, **options))

    def records(self, topic: str) -> list[Record]:
        """Return all records of a topic that consumers may read, by partition and offset.

        Raises:
            UnknownTopicError: There is no such topic.
        """

        def read() -> list[Record]:
            with self._connected().consumer(topic, auto_offset_reset="earliest") as consumer:
                found = list(consumer.records(consumer.end_offsets()))
            return sorted(found, key=lambda record: (record.partition, record.offset))

        return self._wait(read)

    def messages(self, queue: str) -> list[PeekedMessage]:
        """Return the messages of a queue with their states, without receiving them.

        A deleted message is not one of them; `records` has it. The first 100,000 are returned.

        Raises:
            UnknownQueueError: There is no such queue.
        """
        return self._wait(lambda: self._connected().queue(queue).peek(_PEEKED_MAX))

    def settle(self) -> None:
        """Wait until the broker has nothing to do but wait; for half a second at most."""
        thread = self._thread
        if thread is not None:
            self._wait(lambda: thread.call(partial(settle, thread.resource.pool)))

    def _connected(self) -> blocking.Client:
        if self._client is None:
            self._client = blocking.connect(self.address, token=self.token, profile="")
        return self._client

    def _in_thread(self, work: Callable[[], None]) -> None:
        thread = self._thread
        if thread is None:
            work()
        else:
            self._wait(lambda: thread.call_sync(work))

    def _wait(self, work: Callable[[], Result]) -> Result:
        return self._waiter.submit(work).result()

    def _end(self, thread: TrioThread[_Running]) -> None:
        thread.close()
        self._thread = None


def _administrator(data_dir: str, settings: dict[str, object]) -> str | None:
    """Add an administrator to the settings of a broker that requires one; return its token."""
    if settings.get("authentication") != "required" or "bootstrap_admin" in settings:
        return None
    token = new_token(token_bytes(ID_BYTES), token_bytes(SECRET_BYTES))
    file = Path(data_dir, "administrator.toml")
    file.touch(mode=0o600)
    file.write_text(f'user = "admin"\ntoken = "{token}"\n', encoding="utf-8")
    settings["bootstrap_admin"] = str(file)
    return token


def memory_directory() -> str | None:
    """Return a directory in memory; `None` without one of enough room.

    Data directories of processes that were killed are removed from it.
    """
    try:
        if shutil.disk_usage(_MEMORY).free < _MEMORY_BYTES_MIN or not os.access(_MEMORY, os.W_OK):
            return None
    except OSError:
        return None
    for path in _MEMORY.glob(f"{_PREFIX}*"):
        owner = path.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path("/proc", owner).exists():
            shutil.rmtree(path, ignore_errors=True)
    return str(_MEMORY)


@asynccontextmanager
async def _open(data_dir: str, settings: Mapping[str, object]) -> AsyncGenerator[_Running]:
    """Run a broker; if the scope of the result is cancelled, end it as in a crash."""
    system = real_env()
    pool = CountingThreadPool(system.run_in_thread)
    env = replace(system, run_in_thread=pool, probe=_log_event)
    with trio.CancelScope() as scope:
        async with open_broker_with(env, data_dir, settings) as broker:
            yield _Running(broker.address, broker.http_address, scope, pool)


def _log_event(event: str, **fields: object) -> None:
    """Log an event with its fields in one line, as reports of tests show it."""
    level = logging.getLevelNamesMapping()[str(fields.pop("severity", "info")).upper()]
    if _log.isEnabledFor(level):
        _log.log(level, " ".join([event, *(f"{name}={value}" for name, value in fields.items())]))


def _settle_all() -> None:
    for broker in _brokers:
        broker.settle()


def _add_time(step_ms: int) -> None:
    RealClock.ahead_ms += step_ms
