"""The client with trio: create a topic, produce to it, read it to its end.

Needs a broker: `tidelog serve`. An address may be given as an argument.
"""

import sys

import trio

import tidelog

TOPIC = "example-orders"


async def main(address: str) -> None:
    """Produce some records and consume the topic to its end."""
    async with tidelog.connect(address) as client:
        try:
            await client.admin.create_topic(TOPIC, partitions=3)
        except tidelog.TopicExistsError:
            print(f"topic {TOPIC} is there already")

        async with client.producer() as producer:
            # Fast: a plain call that returns at once. The next call raises a failure, or at the
            # latest the end of the block, which flushes all records.
            for number in range(1000):
                user = b"user-%d" % (number % 10)
                try:
                    producer.send_nowait(TOPIC, b"order %d" % number, key=user)
                except tidelog.BufferFullError:
                    await producer.wait_writable()
                    producer.send_nowait(TOPIC, b"order %d" % number, key=user)

            # Careful: waits until the record is on disk, and returns its place.
            receipt = await producer.send(TOPIC, b"the last one", key=b"user-0")
            print(f"the last record is at offset {receipt.offset} of partition {receipt.partition}")

        async with client.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
            count = 0
            async for record in consumer.records(await consumer.end_offsets()):
                count += 1
                if record.value == b"the last one":
                    print(f"{record.partition}/{record.offset} {record.key!r}: {record.value!r}")
            print(f"read {count} records")


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8433")
