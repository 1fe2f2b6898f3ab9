"""Writers and readers on the client library, with a recorded history."""

from random import Random
from typing import final

import trio

from tests.simulation.broker.outcomes import outcome_of
from tests.simulation.checkers.history import Outcome, Poll, Send
from tests.system.histories.recorder import Recorder
from tidelog.client.client import Client
from tidelog.client.consumer.consumer import Consumer
from tidelog.client.producer.producer import Producer
from tidelog.client.producer.receipt import RangeReceipt
from tidelog.wire.errors import TidelogError

_BURST_MAX = 8
_BACKOFF_S = 0.05


@final
class RecordedWriter:
    """One process that sends unique values, a few at a time to one partition."""

    def __init__(
        self, name: str, topic: str, recorder: Recorder, *, random: Random, partition_count: int
    ) -> None:
        """Write as `name`, which must be unique in the history."""
        self.should_stop = False
        self.max_value_bytes = 2000
        self.acknowledged = trio.Event()
        """Set when a record was acknowledged; may be replaced to wait again."""
        self.name = name
        self._topic = topic
        self._recorder = recorder
        self._random = random
        self._partition_count = partition_count
        self._count = 0

    async def run(self, producer: Producer, *, pause_s: float = 0.0) -> None:
        """Write until told to stop; a cancelled send has no end in the history."""
        while not self.should_stop:
            await self.write(producer)
            await trio.sleep(self._random.uniform(0, 2 * pause_s))

    async def write(self, producer: Producer) -> TidelogError | None:
        """Send once; return the error if there was one."""
        partition = self._random.randrange(self._partition_count)
        values = [self._next(partition) for _ in range(self._random.randint(1, _BURST_MAX))]
        steps: list[Send | Poll] = [Send(_key(self._topic, partition), value) for value in values]
        number = self._recorder.begin(self.name, steps)
        try:
            receipts = await producer.send_many(
                self._topic, [value.encode() for value in values], partition=partition
            )
        except TidelogError as error:
            # Of several records, some may have been acknowledged in spite of the error.
            outcome = outcome_of(error) if len(values) == 1 else Outcome.UNKNOWN
            self._recorder.end(number, self.name, outcome, steps=steps)
            await trio.sleep(_BACKOFF_S)
            return error
        self._recorder.end(number, self.name, Outcome.OK, steps=self._told(values, receipts))
        self.acknowledged.set()
        return None

    def _next(self, partition: int) -> str:
        self._count += 1
        padding = self._random.randbytes(self._random.randint(0, self.max_value_bytes // 2)).hex()
        return f"{self.name}/{partition}/{self._count}/{padding}"

    def _told(self, values: list[str], receipts: list[RangeReceipt]) -> list[Send | Poll]:
        steps: list[Send | Poll] = []
        for receipt in sorted(receipts, key=lambda each: each.indexes[0]):
            for place, index in enumerate(receipt.indexes):
                offset = None if receipt.offset is None else receipt.offset + place
                steps.append(Send(_key(receipt.topic, receipt.partition), values[index], offset))
        return steps


@final
class RecordedReader:
    """One process that reads all partitions of a topic from the start."""

    def __init__(self, name: str, topic: str, recorder: Recorder) -> None:
        """Read as `name`."""
        self._name = name
        self._topic = topic
        self._recorder = recorder
        self._seeks = True

    async def follow(self, client: Client) -> None:
        """Read without end; begin again from the start after an error."""
        while True:
            try:
                async with client.consumer(self._topic, auto_offset_reset="earliest") as consumer:
                    await self._read(consumer, until_end=False)
            except TidelogError:
                await trio.sleep(_BACKOFF_S)

    async def read_to_end(self, client: Client) -> int:
        """Read up to the current ends; return the number of records.

        Raises:
            TidelogError: A record is unreadable.
        """
        async with client.consumer(self._topic, auto_offset_reset="earliest") as consumer:
            return await self._read(consumer, until_end=True)

    async def _read(self, consumer: Consumer, *, until_end: bool) -> int:
        count = 0
        self._seeks = True
        batches = consumer.batches(await consumer.end_offsets() if until_end else None)
        while True:
            number = self._recorder.begin(self._name, seeks=self._seeks)
            try:
                batch = await anext(batches)
            except StopAsyncIteration:
                self._recorder.end(number, self._name, Outcome.OK, steps=[])
                return count
            values = [(value or b"").decode() for value in batch.values]
            entries = list(zip(batch.offsets, values, strict=True))
            poll = Poll({_key(batch.topic, batch.partition): entries})
            self._recorder.end(number, self._name, Outcome.OK, steps=[poll])
            self._seeks = False
            count += len(entries)


def _key(topic: str, partition: int) -> str:
    return f"{topic}/{partition}"
