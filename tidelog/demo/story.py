"""The demonstration: produce, kill, go on, consume, compare; work through a queue, replay.

The last replay is that of Spark, where it is installed.

Shell: moves records between the client, a broker process and the core that judges.
"""

from dataclasses import dataclass
from typing import Protocol, final

import trio

from tidelog.client.client import Client, connect
from tidelog.client.producer.producer import Producer
from tidelog.demo.broker_process import open_broker_process
from tidelog.demo.errors import DemoFailedError
from tidelog.demo.flights import Flights
from tidelog.demo.queue_story import QUEUE, QueueReport, work_through
from tidelog.demo.spark_story import SparkReport, replay_with_spark
from tidelog.demo.verification import Consumed, Place, verify

TOPIC = "flights"
PARTITION_COUNT = 6
DEADLINE_S = 120.0
SPARK_DEADLINE_S = 180.0
"""For Spark on top of it."""

_CHUNK = 250
"""Flights that are handed over at once; the next ones follow when these are acknowledged."""


class Audience(Protocol):
    """Is told how it goes."""

    def started(self, address: str, data_dir: str) -> None:
        """The broker listens."""
        ...

    def progressed(self, verb: str, count: int, total: int) -> None:
        """So many records are `produced`, `consumed`, `worked through` or `replayed`."""
        ...

    def killed(self, under_way_count: int, acknowledged_count: int) -> None:
        """The broker is gone, and was told nothing."""
        ...

    def started_again(self, seconds: float) -> None:
        """The broker listens again, so long after it was killed."""
        ...

    def spark_starts(self) -> None:
        """Spark is started, if it is there."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was shown, in records and seconds."""

    produced: int
    acknowledged: int
    consumed: int
    kills: int
    under_way_at_kill: int
    """Records that were handed over and not acknowledged when the broker was killed."""
    recovery_seconds: float
    """From the kill to the next acknowledgement: noticing, starting, recovering, sending again."""
    produce_seconds: float
    """All in all, the kill included."""
    consume_seconds: float
    queue: QueueReport
    replayed: int
    """Read once more, after all of them were deleted in the queue, or dead letters."""
    spark: SparkReport | None = None
    """`None` if it was left out."""
    without_spark: str = ""
    """Why Spark was left out, in one line; empty if it was not, or nobody wanted it."""


async def run_demo(
    flights: Flights, data_dir: str, audience: Audience, *, with_spark: bool = False
) -> Report:
    """Show that a kill loses nothing, and that a queue takes nothing from the log.

    `data_dir` is empty and stays behind.

    If cancelled, the broker is killed and nothing else is left behind.

    Raises:
        DemoFailedError: Something was lost, came twice or out of order, or did not work at all;
            it may come in an `ExceptionGroup`, as may any error of the client.
    """
    demo = _Demo(flights, data_dir, audience, with_spark=with_spark)
    deadline_s = DEADLINE_S + (SPARK_DEADLINE_S if with_spark else 0)
    with trio.move_on_after(deadline_s):
        return await demo.run()
    raise DemoFailedError(f"the demonstration took more than {deadline_s:.0f} s: {demo.state}")


@final
class _Demo:
    def __init__(
        self, flights: Flights, data_dir: str, audience: Audience, *, with_spark: bool
    ) -> None:
        self._flights = flights
        self._with_spark = with_spark
        self._data_dir = data_dir
        self._audience = audience
        self._acknowledged: dict[int, Place] = {}
        self._handed_over_count = 0
        self._is_half_way = trio.Event()
        self._under_way_at_kill = 0
        self._killed_at = 0.0
        self._is_back = False
        self._recovered_at: float | None = None
        self.state = "the broker has not started"
        """What is missing if it ends now."""

    async def run(self) -> Report:
        async with trio.open_nursery() as nursery:
            address: str = await nursery.start(self._run_brokers)
            async with connect(address) as client:
                await client.admin.create_topic(TOPIC, PARTITION_COUNT)
                began_at = trio.current_time()
                async with client.producer() as producer:
                    await self._produce(producer)
                produced_at = trio.current_time()
                consumed = await self._consume(client, "consumed")
                consumed_at = trio.current_time()
                self.state = "messages of the queue are not settled"
                queue = await work_through(
                    client,
                    TOPIC,
                    self._flights,
                    progressed=lambda count: self._audience.progressed(
                        "worked through", count, len(self._flights.values)
                    ),
                )
                replayed = await self._consume(client, "replayed")
            spark = await self._replay_with_spark(address)
            nursery.cancel_scope.cancel()
        for found in (consumed, replayed):
            verdict = verify(
                self._flights.keys, self._flights.values, self._acknowledged, consumed=found
            )
            if not verdict.is_flawless:
                raise DemoFailedError(verdict.summary())
        if self._recovered_at is None:
            raise DemoFailedError("nothing was acknowledged after the kill")
        return Report(
            produced=self._handed_over_count,
            acknowledged=len(self._acknowledged),
            consumed=len(consumed),
            kills=1,
            under_way_at_kill=self._under_way_at_kill,
            recovery_seconds=self._recovered_at - self._killed_at,
            produce_seconds=produced_at - began_at,
            consume_seconds=consumed_at - produced_at,
            queue=queue,
            replayed=len(replayed),
            spark=spark if isinstance(spark, SparkReport) else None,
            without_spark=spark if isinstance(spark, str) else "",
        )

    async def _replay_with_spark(self, address: str) -> SparkReport | str:
        if not self._with_spark:
            return ""
        self._audience.spark_starts()
        self.state = "Spark has not replayed the flights"
        return await replay_with_spark(address, TOPIC, QUEUE, values=self._flights.values)

    async def _run_brokers(self, task_status: trio.TaskStatus[str]) -> None:
        async with open_broker_process(self._data_dir) as first:
            self._audience.started(first.address, self._data_dir)
            task_status.started(first.address)
            await self._is_half_way.wait()
            first.kill()
            self._killed_at = trio.current_time()
            self._under_way_at_kill = self._handed_over_count - len(self._acknowledged)
            await first.wait_ended()
        self._audience.killed(self._under_way_at_kill, len(self._acknowledged))
        self.state = "the broker has not started again"
        async with open_broker_process(self._data_dir, listen=first.address):
            self._is_back = True
            self._audience.started_again(trio.current_time() - self._killed_at)
            await trio.sleep_forever()

    async def _produce(self, producer: Producer) -> None:
        keys, values = self._flights.keys, self._flights.values
        for first in range(0, len(values), _CHUNK):
            numbers = range(len(values))[first : first + _CHUNK]
            self._handed_over_count = numbers.stop
            self.state = f"flights {numbers.start} to {numbers.stop - 1} are not acknowledged"
            receipts = await producer.send_many(
                TOPIC, values[first : numbers.stop], keys=keys[first : numbers.stop]
            )
            for receipt in receipts:
                for place, index in enumerate(receipt.indexes):
                    offset = None if receipt.offset is None else receipt.offset + place
                    self._acknowledged[first + index] = Place(receipt.partition, offset)
            self._audience.progressed("produced", numbers.stop, len(values))
            if self._is_back and self._recovered_at is None:
                self._recovered_at = trio.current_time()
            if numbers.stop * 2 >= len(values):
                # The kill comes while the next flights are under way.
                self._is_half_way.set()

    async def _consume(self, client: Client, verb: str) -> list[Consumed]:
        consumed: list[Consumed] = []
        async with client.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
            async for batch in consumer.batches(await consumer.end_offsets()):
                consumed += [
                    Consumed(record.partition, record.offset, record.key, record.value)
                    for record in batch
                ]
                count = len(consumed)
                self.state = f"{count} records were {verb} so far"
                self._audience.progressed(verb, count, len(self._flights.values))
        return consumed
