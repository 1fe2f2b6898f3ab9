"""At most once: commit, then process.

For effects that must not happen twice but may be lost, such as a message to a person. A worker
processes a month of flights and crashes within a batch. The next worker starts after that batch:
some flights are not processed, and none is processed twice.

Starts a broker of its own, unless an address is given as an argument.
"""

import sys
import tempfile
from collections import Counter

import trio

import tidelog
from tidelog.demo.flights import load_flights

TOPIC, GROUP = "flights-at-most-once", "messages"


class CrashError(Exception):
    """The crash of a worker."""


async def produce_flights(client: tidelog.Client) -> int:
    """Produce all flights; return their count."""
    flights = load_flights()
    await client.admin.create_topic(TOPIC, partitions=6)
    async with client.producer(batch_size=16 << 10) as producer:
        await producer.send_many(TOPIC, flights.values, keys=flights.keys)
    return len(flights.values)


async def work(
    client: tidelog.Client, sent: Counter[bytes], *, crash_after: int | None = None
) -> None:
    """Process all current flights, or crash."""
    ends = await client.admin.list_offsets(TOPIC, "latest")
    until = {
        tidelog.TopicPartition(TOPIC, partition): end.offset or 0 for partition, end in ends.items()
    }
    sent_count = 0
    async with client.consumer(
        TOPIC, group_id=GROUP, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        async for batch in consumer.batches(until):
            try:
                await consumer.commit()  # The commit comes first. If it fails because another
            except tidelog.PartitionNotOwnedError:
                continue  # worker owns the partition now, this worker skips the batch.
            for flight in batch.values:
                if sent_count == crash_after:
                    raise CrashError(f"a worker crashes after {sent_count} flights")
                sent[flight or b""] += 1  # The effect, after the commit.
                sent_count += 1


async def main(client: tidelog.Client) -> None:
    """Run a worker that crashes, and a second one that goes on."""
    count = await produce_flights(client)
    sent: Counter[bytes] = Counter()
    try:
        await work(client, sent, crash_after=5_000)
    except CrashError as error:
        print(error)
    await work(client, sent)
    twice_count = sum(times > 1 for times in sent.values())
    print(f"{count - len(sent)} of {count} flights were left out, {twice_count} came twice")


async def run(address: str | None) -> None:
    """Use the broker at `address`, or one on temporary data."""
    if address is not None:
        async with tidelog.connect(address) as client:
            await main(client)
        return
    with tempfile.TemporaryDirectory() as data_dir:
        async with (
            tidelog.open_broker(data_dir) as broker,
            tidelog.connect(broker.address) as client,
        ):
            await main(client)


if __name__ == "__main__":
    trio.run(run, sys.argv[1] if len(sys.argv) > 1 else None)
