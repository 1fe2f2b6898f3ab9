"""Load processes for queues: senders and workers that use the client library.

A load process gets its order as JSON, connects, writes a line when it is ready, begins when it
receives a line, and writes its result. Each message begins with the time at which it was due, by
the clock that all processes of a machine share.
"""

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import count as count_from
from statistics import quantiles
from time import perf_counter, process_time, time_ns
from typing import Final, final

import trio

import tidelog
from bench.machine import ROOT

MESSAGE_BYTES: Final = 1024
EACH_ITS_OWN: Final = -1
"""Group count for as many groups as messages."""
_TIME_DIGITS: Final = 24
_FILLER: Final = bytes(range(256)) * (MESSAGE_BYTES // 256)
_WAIT_S: Final = 5.0
QUEUE_BATCH_BYTES: Final = 64 << 10
"""Records of a batch that queues send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOrder:
    """Order of a load process."""

    role: str
    """`send`, `work`, `produce`, `fetch`; `fill`: produce as queues do, with keys."""
    addresses: str
    name: str
    """Name of the queue and of its topic."""
    count: int
    batch: int
    tasks: int = 1
    """Number of concurrent tasks."""
    rate: float = 0.0
    """Messages a second, over all tasks; 0 for as many as possible."""
    group_count: int = 0
    """FIFO: number of message groups; 0 for messages without a group, or `EACH_ITS_OWN`."""
    value_bytes: int = MESSAGE_BYTES


@dataclass(frozen=True, slots=True)
class LoadResult:
    """Result of a load process; times by the clock of the machine, in seconds."""

    began: float
    ended: float
    cpu_seconds: float
    calls: int = 0
    """`work`: receives that returned messages."""
    delivered_after: tuple[float, float] = (0.0, 0.0)
    """`work`: seconds from due to delivered: median, and 99 %."""
    received_in: tuple[float, float] = (0.0, 0.0)
    """`work`: seconds of a receive: median, and 99 %."""


@final
class LoadProcess:
    """Load process on the core of its parent."""

    def __init__(self, order: LoadOrder) -> None:
        """Start the process, which waits for `begin`."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.queue_load", json.dumps(asdict(order))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )

    def wait_ready(self) -> None:
        """Wait until the process is connected."""
        self._read()

    def begin(self) -> None:
        """Start the load."""
        assert self._process.stdin is not None
        self._process.stdin.write("begin\n")
        self._process.stdin.flush()

    def result(self) -> LoadResult:
        """Wait for the result."""
        result = LoadResult(**json.loads(self._read()))
        self._process.communicate()
        return result

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a load process ended with status {self._process.wait()}")
        return line


def run_loads(orders: Sequence[LoadOrder]) -> list[LoadResult]:
    """Run load processes concurrently."""
    processes = [LoadProcess(order) for order in orders]
    for process in processes:
        process.wait_ready()
    for process in processes:
        process.begin()
    return [process.result() for process in processes]


@final
class _Share:
    """Messages that all tasks of a process have yet to handle, and when they are due."""

    def __init__(self, order: LoadOrder) -> None:
        self.left = order.count
        self._order = order
        self._began = perf_counter()

    def take(self) -> tuple[int, float]:
        """Return the number of messages to handle next, and their due time."""
        due = perf_counter()
        if self._order.rate:
            due = self._began + (self._order.count - self.left) / self._order.rate
        taken = min(self.left, self._order.batch)
        self.left -= taken
        return taken, due


@final
class _Load:
    """The inside of a load process."""

    def __init__(self, order: LoadOrder, client: tidelog.Client) -> None:
        self._order = order
        self._client = client
        self._queue = client.queue(order.name)
        self._share = _Share(order)
        self._numbers = count_from()
        self._delivered_after: list[float] = []
        self._received_in: list[float] = []

    async def run(self) -> LoadResult:
        roles: dict[str, Callable[[], Awaitable[None]]] = {
            "send": self._send,
            "work": self._work,
            "produce": self._produce,
            "fetch": self._fetch,
            "fill": self._fill,
        }
        self._share = _Share(self._order)
        began, cpu_before = perf_counter(), process_time()
        async with trio.open_nursery() as nursery:
            for _ in range(self._order.tasks):
                nursery.start_soon(roles[self._order.role])
        ended, cpu = perf_counter(), process_time() - cpu_before
        return LoadResult(
            began,
            ended,
            cpu,
            len(self._received_in),
            _middle_and_tail(self._delivered_after),
            _middle_and_tail(self._received_in),
        )

    def _values(self, count: int, due: float) -> list[bytes]:
        head = b"%0*d" % (_TIME_DIGITS, int(due * 1e9))
        return [head + _FILLER[_TIME_DIGITS : self._order.value_bytes]] * count

    async def _send(self) -> None:
        while self._share.left:
            taken, due = self._share.take()
            await _sleep_until(due)
            values = self._values(taken, due)
            if not self._order.group_count:
                await self._queue.send_batch(values)
                continue
            groups = (next(self._numbers) % self._order.group_count for _ in values)
            await self._queue.send_batch(
                tidelog.OutgoingMessage(value=value, key=b"%d" % group)
                for value, group in zip(values, groups, strict=True)
            )

    async def _work(self) -> None:
        while self._share.left:
            wanted, due = self._share.take()
            if self._order.rate:
                await _sleep_until(due)
            while wanted:
                began = perf_counter()
                messages = await self._queue.receive(wanted, wait=_WAIT_S)
                now = perf_counter()
                if not messages:
                    continue
                self._received_in.append(now - began)
                for message in messages:
                    assert message.value is not None
                    self._delivered_after.append(now - int(message.value[:_TIME_DIGITS]) / 1e9)
                await self._queue.delete_batch(messages)
                wanted -= len(messages)

    async def _produce(self) -> None:
        async with self._client.producer(batch_size=QUEUE_BATCH_BYTES) as producer:
            while self._share.left:
                taken, due = self._share.take()
                await producer.send_many(self._order.name, self._values(taken, due))

    async def _fill(self) -> None:
        group_count = self._order.group_count
        prefix = b"%d-" % time_ns()
        async with self._client.producer(batch_size=QUEUE_BATCH_BYTES) as producer:
            while self._share.left:
                taken, due = self._share.take()
                keys = None
                if group_count:
                    numbers = (next(self._numbers) for _ in range(taken))
                    own = group_count == EACH_ITS_OWN
                    keys = [
                        prefix + b"%d" % each if own else b"%d" % (each % group_count)
                        for each in numbers
                    ]
                values = self._values(taken, due)
                await producer.send_many(self._order.name, values, keys=keys)

    async def _fetch(self) -> None:
        left = self._order.count
        settings = self._client.consumer(self._order.name, auto_offset_reset="earliest")
        async with settings as consumer:
            async for batch in consumer.batches():
                left -= len(batch.values)
                if not left:
                    return


def _middle_and_tail(seconds: Sequence[float]) -> tuple[float, float]:
    if len(seconds) < 2:  # noqa: PLR2004  (what `quantiles` needs)
        return 0.0, 0.0
    percentiles = quantiles(seconds, n=100)
    return percentiles[49], percentiles[98]


async def _sleep_until(due: float) -> None:
    await trio.sleep(max(due - perf_counter(), 0))


async def _main(order: LoadOrder) -> None:
    async with tidelog.connect(order.addresses) as client:
        await client.admin.describe_topics([order.name])
        load = _Load(order, client)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        result = await load.run()
    sys.stdout.write(json.dumps(asdict(result)) + "\n")


if __name__ == "__main__":
    trio.run(_main, LoadOrder(**json.loads(sys.argv[1])))
