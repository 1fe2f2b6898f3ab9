"""A program of asyncio that cancels its sends at random, while its broker crashes."""

import asyncio
from collections import Counter
from random import Random

from tests.tidelog.aio.programs import Run, new_topic
from tidelog import aio, testing


def test_cancelled_sends_and_crashes_lose_and_repeat_nothing(run: Run) -> None:
    random = Random(28)

    async def main(broker: testing.EphemeralBroker) -> None:
        async with aio.connect(broker.address) as client, client.producer() as producer:
            topic = await new_topic(client, partitions=3)
            acknowledged: set[tuple[int, int | None, bytes]] = set()
            cancelled_count = 0

            async def send(number: int, patience: float | None) -> None:
                value = b"%d" % number
                try:
                    async with asyncio.timeout(patience):
                        receipt = await producer.send(topic, value, key=b"%d" % (number % 50))
                except TimeoutError:
                    nonlocal cancelled_count
                    cancelled_count += 1
                else:
                    acknowledged.add((receipt.partition, receipt.offset, value))

            async def crash() -> None:
                for _ in range(2):
                    await asyncio.sleep(0.05)
                    await asyncio.to_thread(broker.kill)
                    await asyncio.sleep(0.05)
                    await asyncio.to_thread(broker.start)

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(crash())
                for number in range(1000):
                    patience = random.uniform(0, 0.1) if random.random() < 0.7 else None
                    tasks.create_task(send(number, patience))
                    if number % 10 == 0:
                        await asyncio.sleep(0.002)
            await producer.flush()
            receipt = await producer.send(topic, b"last")  # The client goes on.

            async with client.consumer(topic, auto_offset_reset="earliest") as consumer:
                ends = await consumer.end_offsets()
                records = [record async for record in consumer.records(ends)]

        stored = {(record.partition, record.offset, record.value) for record in records}
        assert acknowledged <= stored
        assert (receipt.partition, receipt.offset, b"last") in stored
        assert max(Counter(record.value for record in records).values()) == 1
        assert cancelled_count > 10
        assert len(acknowledged) > 250

    with testing.broker() as broker:
        run(main(broker))
