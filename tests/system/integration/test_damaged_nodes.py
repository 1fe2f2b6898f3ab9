"""Three brokers as real processes, of which one has a damaged disk: it never wins."""

from contextlib import suppress
from itertools import cycle
from pathlib import Path

import trio

import tidelog
from tests.system.integration.nodes import Nodes
from tests.system.integration.processes import DEADLINE_S

TOPIC = "orders"
PARTITIONS = 3
RECORDS = 300


def flip_last_bit(segment: Path) -> None:
    """Flip one bit in the last batch of a segment."""
    data = bytearray(segment.read_bytes())
    data[-5] ^= 1
    segment.write_bytes(data)


def cut_tail(segment: Path) -> None:
    """Cut the last 300 bytes of a segment."""
    segment.write_bytes(segment.read_bytes()[:-300])


def newest_segments(data_dir: Path) -> list[Path]:
    """Return the newest segment of each partition of the topic."""
    partitions = sorted(data_dir.glob(f"topics/{TOPIC}.*/*"))
    return [max(partition.glob("*.log")) for partition in partitions]


async def produce(client: tidelog.Client, first: int) -> dict[bytes, tuple[int, int]]:
    """Produce small batches, and return the acknowledged place of each record."""
    places: dict[bytes, tuple[int, int]] = {}
    async with client.producer() as producer:
        for number in range(first, first + RECORDS, 10):
            values = [b"%d" % each for each in range(number, number + 10)]
            partition = number // 10 % PARTITIONS
            for receipt in await producer.send_many(TOPIC, values, partition=partition):
                assert receipt.offset is not None
                for place, index in enumerate(receipt.indexes):
                    places[values[index]] = (receipt.partition, receipt.offset + place)
    return places


async def read_all(client: tidelog.Client) -> dict[bytes, tuple[int, int]]:
    async with client.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
        return {
            record.value or b"": (record.partition, record.offset)
            async for batch in consumer.batches(await consumer.end_offsets())
            for record in batch
        }


async def wait_out_of_sync(client: tidelog.Client, node_id: int) -> None:
    """Wait until a dead broker is in no ISR."""
    while True:
        with suppress(tidelog.TidelogError):
            (topic,) = await client.admin.describe_topics([TOPIC])
            if not any(node_id in each.in_sync_replicas for each in topic.partitions):
                return
        await trio.sleep(0.05)


async def test_damaged_tails_on_one_node_do_not_win(tmp_path: Path) -> None:
    """Broker 1 is damaged, broker 2 comes back after it, and broker 3 was away before."""
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            nodes = Nodes(tmp_path, nursery)
            await nodes.start(*nodes.ids)
            async with tidelog.connect(nodes.addresses) as client:
                await client.admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
                places = await produce(client, 0)
                await nodes.kill_and_wait(3)
                await wait_out_of_sync(client, 3)
                places |= await produce(client, RECORDS)
            async with trio.open_nursery() as killing:
                killing.start_soon(nodes.kill_and_wait, 1)
                killing.start_soon(nodes.kill_and_wait, 2)
            damages = cycle([flip_last_bit, cut_tail])
            for damage, segment in zip(damages, newest_segments(tmp_path / "1"), strict=False):
                damage(segment)

            await nodes.start(1, 3)
            async with tidelog.connect(nodes.addresses) as client:
                await wait_out_of_sync(client, 2)
                await nodes.start(2)
                assert await read_all(client) == places
            nursery.cancel_scope.cancel()
