"""Processors and their broker are killed and stopped; each record is copied exactly once."""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import final

import trio

import tidelog
from tests.paths import ROOT
from tests.system.integration.processes import BrokerProcess, environment, serving

BATCH = 50


def serve(
    data_dir: Path, listen: str = "127.0.0.1:0"
) -> AbstractAsyncContextManager[BrokerProcess]:
    """Run a broker whose groups notice dead members soon."""
    return serving(
        data_dir,
        listen=listen,
        TIDELOG_GROUP_CONSUMER_SESSION_TIMEOUT_MS="6000",
        TIDELOG_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS="500",
        TIDELOG_GROUP_INITIAL_REBALANCE_DELAY_MS="1500",
        TIDELOG_GROUP_REPLACEMENT_DELAY_MS="0",
    )


@final
class Copier:
    """A processor in a process of its own."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self._output = b""
        self._has_output = trio.Event()

    async def copies(self) -> None:
        """Wait until it processes something from now on."""
        self._has_output = trio.Event()
        await self._has_output.wait()

    async def read(self) -> None:
        assert self.process.stdout is not None
        async for _ in self.process.stdout:
            self._has_output.set()

    async def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return await self.process.wait()


@asynccontextmanager
async def copier(address: str) -> AsyncGenerator[Copier, None]:
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "tests.system.integration.copying_processor", address],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=environment(),
    )
    found = Copier(process)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(found.read)
            yield found
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            process.kill()
            await process.wait()


@final
class Orders:
    """Writes records of which each has another value."""

    def __init__(self) -> None:
        self.count = 0
        self.should_stop = False

    async def write(self, client: tidelog.Client) -> None:
        async with client.producer() as producer:
            while not self.should_stop:
                numbers = range(self.count, self.count + BATCH)
                values = [b"%d" % number for number in numbers]
                await producer.send_many("orders", values, keys=values)
                self.count = numbers.stop
                await trio.sleep(0.02)


async def read_copies(client: tidelog.Client) -> Counter[bytes | None]:
    async with client.consumer("copies", auto_offset_reset="earliest") as consumer:
        records = consumer.records(await consumer.end_offsets())
        return Counter([record.value async for record in records])


async def test_killed_and_stopped_processors_copy_each_record_once(tmp_path: Path) -> None:
    orders = Orders()
    async with serve(tmp_path) as broker:
        address = broker.address
        async with tidelog.connect(address) as client:
            await client.admin.create_topic("orders", 4)
            await client.admin.create_topic("copies", 2)
        async with (
            tidelog.connect(address) as client,
            trio.open_nursery() as nursery,
            copier(address) as killed,
            copier(address) as stopped,
        ):
            nursery.start_soon(orders.write, client)
            await killed.copies()
            await stopped.copies()
            stopped.process.send_signal(signal.SIGSTOP)
            assert await killed.end(signal.SIGKILL) == -signal.SIGKILL
            broker.signal(signal.SIGKILL)
            await broker.wait_ended()
            async with (
                serve(tmp_path, address),
                copier(address) as successor,
            ):
                await successor.copies()  # The sessions of both others have expired.
                stopped.process.send_signal(signal.SIGCONT)
                await stopped.copies()
                orders.should_stop = True
                await until_copied(client, orders)
                assert await stopped.end(signal.SIGTERM) == 0
                assert await successor.end(signal.SIGTERM) == 0

                copies = await read_copies(client)
                group = await client.admin.describe_group("copier")
    assert copies == Counter(b"%d" % number for number in range(orders.count))
    assert sum(each.lag_records or 0 for each in group.partitions) == 0
    assert group.members == ()


async def until_copied(client: tidelog.Client, orders: Orders) -> None:
    """Wait until there are as many copies as records."""
    while (await read_copies(client)).total() < orders.count:  # noqa: ASYNC110  (no notice)
        await trio.sleep(0.2)
