"""Replay by time: the flights of one afternoon, out of a month.

The timestamp of each record is the scheduled time of the flight, so that a consumer can seek to any
time in January 2013.
"""

import tempfile
from collections import Counter
from datetime import UTC, datetime

import trio

import tidelog
from tidelog.demo.flights import load_flights

FROM = datetime(2013, 1, 15, 17, tzinfo=UTC)
UNTIL = datetime(2013, 1, 15, 22, tzinfo=UTC)


def milliseconds(moment: datetime) -> int:
    """Return Unix time."""
    return int(moment.timestamp()) * 1000


async def produce_flights(client: tidelog.Client) -> None:
    """Produce all flights with their scheduled times."""
    flights = load_flights()
    scheduled = flights.columns.index("time_hour")
    # The data is older than the default retention of seven days.
    await client.admin.create_topic("flights", partitions=3, retention_ms="unlimited")
    async with client.producer(compression_type="zstd") as producer:
        for key, value in zip(flights.keys, flights.values, strict=True):
            moment = datetime.fromisoformat(value.split(b",")[scheduled].decode())
            producer.send_nowait("flights", value, key=key, timestamp_ms=milliseconds(moment))
    print(f"produced {len(flights.values)} flights")


async def replay(client: tidelog.Client) -> None:
    """Read the flights of the afternoon, and print their destinations."""
    destination = load_flights().columns.index("dest")
    destinations: Counter[str] = Counter()
    async with client.consumer("flights") as consumer:
        await consumer.seek_to_time(milliseconds(FROM))
        async for batch in consumer.batches(await consumer.end_offsets()):
            for timestamp_ms, value in zip(batch.timestamps_ms, batch.values, strict=True):
                # The log is in the order of arrival, which roughly matches these times.
                if value is not None and milliseconds(FROM) <= timestamp_ms < milliseconds(UNTIL):
                    destinations[value.split(b",")[destination].decode()] += 1
    print(f"{destinations.total()} flights from {FROM:%H:%M} to {UNTIL:%H:%M} UTC, mostly to")
    for name, count in destinations.most_common(3):
        print(f"  {name}  {count}")


async def main() -> None:
    """Produce and replay on temporary data."""
    with tempfile.TemporaryDirectory() as data_dir:
        async with (
            tidelog.open_broker(data_dir) as broker,
            tidelog.connect(broker.address) as client,
        ):
            await produce_flights(client)
            await replay(client)


if __name__ == "__main__":
    trio.run(main)
