"""The steps of the demonstration: produce, kill, recover, consume, compare; queue and replay.

The last replay is that of Spark, if it is installed.

Shell: moves records between the client, a broker process and the core with the checks.
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
"""Seconds for Spark, on top of `DEADLINE_S`."""

_CHUNK = 250
"""Flights of one `send_many`; the next ones follow after its acknowledgement."""


class Audience(Protocol):
    """The receiver of progress events."""

    def started(self, address: str, data_dir: str) -> None:
        """Report that the broker listens."""
        ...

    def progressed(self, verb: str, count: int, total: int) -> None:
        """Report records that are `produced`, `consumed`, `worked through` or `replayed`."""
        ...

    def killed(self, under_way_count: int, acknowledged_count: int) -> None:
        """Report that the broker was killed."""
        ...

    def started_again(self, seconds: float) -> None:
        """Report that the broker listens again, and the seconds since the kill."""
        ...

    def spark_starts(self) -> None:
        """Report that Spark is about to start, if it is installed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of the demonstration, in records and seconds."""

    produced: int
    acknowledged: int
    consumed: int
    kills: int
    under_way_at_kill: int
    """Records in flight when the broker was killed."""
    recovery_seconds: float
    """Time from the kill to the next acknowledgement: detection, start, recovery, retries."""
    produce_seconds: float
    """Time of all records, the kill included."""
    consume_seconds: float
    queue: QueueReport
    replayed: int
    """Records read once more, after the queue deleted or rejected all of them."""
    spark: SparkReport | None = None
    """The report of Spark; `None` if it was skipped."""
    without_spark: str = ""
    """The reason why Spark was skipped, in one line; empty if it ran or was not requested."""


async def run_demo(
    flights: Flights, data_dir: str, audience: Audience, *, with_spark: bool = False
) -> Report:
    """Show that a kill loses no record, and that a queue deletes no record of the log.

    `data_dir` is empty at the start; the caller removes it.

    If cancelled, the broker is killed.

    Raises:
        DemoFailedError: A record is lost, duplicated or out of order, or a step failed. This and
            any error of the client may be in an `ExceptionGroup`.
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
        """The step that is not complete, for the error text."""

    async def run(self) -> Report:
        async with trio.open_nursery() as nursery:
            address: str = await nursery.start(self._run_brokers)
            async with connect(address, profile="") as client:
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
            raise DemoFailedError("no record was acknowledged after the kill")
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
                # The kill hits the next flights in flight.
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
