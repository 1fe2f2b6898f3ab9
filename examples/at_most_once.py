"""At most once: commit, then process.

For effects that must not happen twice and may not happen at all, such as a message to a person. A
worker works through a month of flights and crashes in the middle of a batch. The next one goes on
behind that batch: some flights are not processed, and none is processed twice.

Brings its own broker, unless the address of one is given as an argument.
"""

import sys
import tempfile
from collections import Counter

import trio

import tidelog
from tidelog.demo.flights import load_flights

TOPIC, GROUP = "flights-at-most-once", "messages"


class CrashError(Exception):
    """A worker falls over."""


async def produce_flights(client: tidelog.Client) -> int:
    """Write all flights; return how many there are."""
    flights = load_flights()
    await client.admin.create_topic(TOPIC, partitions=6)
    async with client.producer(batch_size=16 << 10) as producer:
        await producer.send_many(TOPIC, flights.values, keys=flights.keys)
    return len(flights.values)


async def work(
    client: tidelog.Client, sent: Counter[bytes], *, crash_after: int | None = None
) -> None:
    """Process the flights that are there, or crash."""
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
                await consumer.commit()  # It counts as done first. Whoever may not say so,
            except tidelog.PartitionNotOwnedError:
                continue  # because another worker has it now, must not do it.
            for flight in batch.values:
                if sent_count == crash_after:
                    raise CrashError(f"a worker crashes after {sent_count} flights")
                sent[flight or b""] += 1  # Then comes the effect.
                sent_count += 1


async def main(client: tidelog.Client) -> None:
    """Let one worker crash, and another one go on."""
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
    """Use the broker at `address`, or one on throwaway data."""
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
