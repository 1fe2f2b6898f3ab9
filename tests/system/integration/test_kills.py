"""Tests that a broker under repeated kills loses no acknowledged record."""

import random
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

import tidelog
from tests.system.integration.processes import DEADLINE_S, serving
from tidelog.demo.verification import Consumed, Place, verify

TOPIC = "kills"
SEED = 20
"""Seed of the times of the kills."""


async def run_mortal_broker(
    data_dir: Path,
    moments: list[Callable[[], Awaitable[None]]],
    is_done: trio.Event,
    *,
    task_status: trio.TaskStatus[str],
) -> None:
    """Serve on one address; kill the broker at each time, and restart it at once."""
    address = "127.0.0.1:0"
    for moment in moments:
        async with serving(data_dir, listen=address) as broker:
            if address != broker.address:
                address = broker.address
                task_status.started(address)
            await moment()
            broker.signal(signal.SIGKILL)
            await broker.wait_ended()
    async with serving(data_dir, listen=address):
        is_done.set()
        await trio.sleep_forever()


async def read_all(client: tidelog.Client) -> list[Consumed]:
    async with client.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
        return [
            Consumed(record.partition, record.offset, record.key, record.value)
            async for batch in consumer.batches(await consumer.end_offsets())
            for record in batch
        ]


class Writers:
    """Several tasks that share a producer; each writes records under keys of its own."""

    COUNT = 4
    CHUNK = 20

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes] = []
        self.acknowledged: dict[int, Place] = {}
        self.is_over = False
        self._progress = trio.Event()

    async def write(self, producer: tidelog.Producer, writer: int) -> None:
        """Send chunk after chunk, each after the acknowledgement of the one before."""
        while not self.is_over:
            numbers = range(len(self.values), len(self.values) + self.CHUNK)
            keys = [b"%d-%d" % (writer, number % 5) for number in numbers]
            values = [b"%d" % number for number in numbers]
            self.keys += keys
            self.values += values
            for receipt in await producer.send_many(TOPIC, values, keys=keys):
                assert receipt.offset is not None
                for place, index in enumerate(receipt.indexes):
                    at = Place(receipt.partition, receipt.offset + place)
                    self.acknowledged[numbers.start + index] = at
            progress, self._progress = self._progress, trio.Event()
            progress.set()

    async def wait_acknowledged(self, count: int) -> None:
        """Wait until `count` more records are acknowledged."""
        wanted = len(self.acknowledged) + count
        while len(self.acknowledged) < wanted:
            await self._progress.wait()


async def test_every_acknowledged_record_survives_five_kills(tmp_path: Path) -> None:
    entropy = random.Random(SEED)
    writers = Writers()
    under_way: list[int] = []

    def moment_after(count: int) -> Callable[[], Awaitable[None]]:
        async def wait() -> None:
            await writers.wait_acknowledged(count)
            under_way.append(len(writers.values) - len(writers.acknowledged))

        return wait

    # Some kills come soon after a start, others in the middle of the work.
    moments = [moment_after(entropy.choice([0, 1, 100, 400])) for _ in range(4)]
    moments.insert(0, moment_after(400))
    is_done = trio.Event()
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            address: str = await nursery.start(run_mortal_broker, tmp_path, moments, is_done)
            async with tidelog.connect(address) as client:
                await client.admin.create_topic(TOPIC, 3)
                async with client.producer() as producer, trio.open_nursery() as writing:
                    for writer in range(writers.COUNT):
                        writing.start_soon(writers.write, producer, writer)
                    await is_done.wait()
                    await writers.wait_acknowledged(400)
                    writers.is_over = True
                consumed = await read_all(client)
            nursery.cancel_scope.cancel()

    assert len(under_way) == 5
    assert min(under_way[:1]) > 0, "the first kill did not interrupt anything"
    assert len(writers.acknowledged) == len(writers.values) == len(consumed)
    verdict = verify(writers.keys, writers.values, writers.acknowledged, consumed=consumed)
    assert verdict.is_flawless, verdict.summary()


async def test_unawaited_records_arrive_once_and_in_order_across_kills(
    tmp_path: Path,
) -> None:
    handed_over_count = 0
    acknowledged_counts: list[int] = []
    is_done = trio.Event()
    has_progressed = trio.Event()

    async def moment() -> None:
        wanted = handed_over_count + 20_000
        while handed_over_count < wanted:
            await has_progressed.wait()

    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            address: str = await nursery.start(run_mortal_broker, tmp_path, [moment] * 2, is_done)
            async with tidelog.connect(address) as client:
                await client.admin.create_topic(TOPIC, 1)
                async with client.producer(batch_size=4096, buffer_memory=64 * 1024) as producer:
                    while not is_done.is_set():
                        try:
                            producer.send_nowait(TOPIC, b"%d" % handed_over_count)
                        except trio.WouldBlock:
                            acknowledged_counts.append(
                                producer.statistics().acknowledged_record_count
                            )
                            has_progressed.set()
                            has_progressed = trio.Event()
                            await producer.wait_writable()
                        else:
                            handed_over_count += 1
                consumed = await read_all(client)
            nursery.cancel_scope.cancel()

    assert [record.value for record in consumed] == [b"%d" % n for n in range(handed_over_count)]
    assert [record.offset for record in consumed] == list(range(handed_over_count))
    assert acknowledged_counts == sorted(acknowledged_counts)
