"""Exactly once: output and position in the input are one decision.

Two processors share a month of flights, and write the delay of each one into another topic. One of
them crashes; the other takes over behind its last transaction. No delay is missing, and none is
there twice. Cancelled flights have no delay: they go to a topic for dead letters.

Starts a broker of its own, unless an address is given as an argument.
"""

import sys
import tempfile
from collections.abc import Callable

import trio

import tidelog
from tidelog.demo.flights import load_flights

FLIGHTS, DELAYS, DEAD = "flights-exactly-once", "delays", "delays-dead"
CRASH_AFTER = 15_000
Transform = Callable[[tidelog.Record], tidelog.ProducerRecord]


def delay_of(columns: list[str]) -> Transform:
    """Return the transform, which raises an error for a flight without a delay."""
    carrier, delay = columns.index("carrier"), columns.index("dep_delay")

    def transform(record: tidelog.Record) -> tidelog.ProducerRecord:
        fields = (record.value or b"").split(b",")
        return tidelog.ProducerRecord(DELAYS, b"%d" % int(fields[delay]), key=fields[carrier])

    return transform


async def count_of(client: tidelog.Client, topic: str) -> int:
    """Return the number of records in a topic."""
    async with client.consumer(topic, auto_offset_reset="earliest") as consumer:
        return sum((await consumer.end_offsets()).values())


async def main(client: tidelog.Client) -> None:
    """Run two processors that share the flights; one of them crashes."""
    flights = load_flights()
    for topic in (FLIGHTS, DELAYS, DEAD):
        await client.admin.create_topic(topic, partitions=6)
    async with client.producer() as producer:
        await producer.send_many(FLIGHTS, flights.values, keys=flights.keys)

    transform, seen = delay_of(flights.columns), 0

    def crashing(record: tidelog.Record) -> tidelog.ProducerRecord:
        nonlocal seen
        seen += 1
        if seen == CRASH_AFTER:
            crash.cancel()
        return transform(record)

    def processor(of: Transform) -> tidelog.Processor:
        return client.processor(FLIGHTS, of, name="delays", dead_letter_topic=DEAD)

    first, second = processor(crashing), processor(transform)
    with trio.CancelScope() as crash:
        await first.run()
    print(f"a processor crashes after {CRASH_AFTER} flights")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.run)
        total = 0
        while total < len(flights.values):
            await trio.sleep(0.1)
            total = await count_of(client, DELAYS) + await count_of(client, DEAD)
        second.stop()  # It commits what it has, and leaves its group.

    assert first.statistics.input_count < len(flights.values)
    delays, dead = await count_of(client, DELAYS), await count_of(client, DEAD)
    print(f"{len(flights.values)} flights: {delays} delays, {dead} dead letters")


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
