"""At least once: process, then commit.

Two workers share a month of flights. One worker crashes within a batch; the other takes over at the
last commit. Some flights are processed twice, and none is lost. If the effect of a record is
idempotent, as with the set of flights here, the result is exactly once.

Starts a broker of its own, unless an address is given as an argument.
"""

import sys
import tempfile
from collections import Counter

import trio

import tidelog
from tidelog.demo.flights import load_flights

TOPIC, GROUP = "flights-at-least-once", "delays"


class CrashError(Exception):
    """The crash of a worker."""


async def produce_flights(client: tidelog.Client) -> int:
    """Produce all flights; return their count."""
    flights = load_flights()
    await client.admin.create_topic(TOPIC, partitions=6)
    async with client.producer() as producer:
        await producer.send_many(TOPIC, flights.values, keys=flights.keys)
    return len(flights.values)


async def work(
    client: tidelog.Client, done: Counter[bytes], count: int, *, crash_after: int | None = None
) -> None:
    """Process flights until all are done, or crash."""
    processed_count = 0
    async with client.consumer(
        TOPIC, group_id=GROUP, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        async for batch in consumer.batches():
            for flight in batch.values:
                if processed_count == crash_after:
                    raise CrashError(f"a worker crashes after {processed_count} flights")
                done[flight or b""] += 1  # The effect comes first,
                processed_count += 1
            try:
                await consumer.commit()  # then the commit.
            except tidelog.PartitionNotOwnedError as error:
                print(f"another worker will process these again: {error}")
            if len(done) == count:
                return


async def main(client: tidelog.Client) -> None:
    """Run two workers that share the flights; one of them crashes."""
    count = await produce_flights(client)
    done: Counter[bytes] = Counter()

    async def crash() -> None:
        try:
            await work(client, done, count, crash_after=5_000)
        except CrashError as error:
            print(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(crash)
        await trio.sleep(1)  # At first, the first worker owns all partitions.
        await work(client, done, count)
        nursery.cancel_scope.cancel()
    twice_count = sum(times > 1 for times in done.values())
    print(f"{len(done)} of {count} flights were processed, {twice_count} of them more than once")


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
