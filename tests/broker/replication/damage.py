"""Damage on the disks of three brokers, and its discovery."""

from collections.abc import Awaitable, Callable
from typing import Final

from tests.broker.replication.three_brokers import NODES, TOPIC, Acknowledged, ThreeBrokers
from tests.coordinator.raft_clients import until
from tidelog.client.client import Client
from tidelog.wire.errors import CorruptRecordError

SEGMENT_BYTES: Final = 1 << 20
VALUE: Final = b"-" * 20_000


async def make_topic(client: Client, durability: str = "fsync") -> None:
    """Create the topic with segments as small as they may be."""
    config = {"durability": durability, "segment_bytes": str(SEGMENT_BYTES)}
    await client.admin.create_topic(TOPIC, 1, replication_factor=3, config=config)


async def produce(client: Client, count: int, *, start: int = 0) -> Acknowledged:
    """Send large records, one in a batch; return the acknowledged ones."""
    acknowledged: Acknowledged = {}
    async with client.producer() as producer:
        for number in range(start, start + count):
            value = b"order %d%s" % (number, VALUE)
            receipt = await producer.send(TOPIC, value, partition=0)
            assert receipt.offset is not None
            acknowledged[receipt.offset] = value
    return acknowledged


async def consume(client: Client, count: int) -> list[bytes]:
    """Return the first records of the topic."""
    values: list[bytes] = []
    async with client.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
        async for record in consumer:
            values.append(record.value or b"")
            if len(values) == count:
                break
    return values


def segments(brokers: ThreeBrokers, node_id: int) -> list[str]:
    """Return the segment files of a replica, oldest first."""
    marks = (f"/{TOPIC}", ".log")
    paths = brokers.machines[node_id].disk.paths()
    return sorted(path for path in paths if marks[0] in f"/{path}" and path.endswith(marks[1]))


def flip(brokers: ThreeBrokers, node_id: int, path: str, *, position: int | None = None) -> None:
    """Flip a bit of a file, in its middle without a position."""
    disk = brokers.machines[node_id].disk
    middle = len(disk.durable_bytes(path)) // 2
    disk.flip_bit(path, middle if position is None else position, 3)


def read_all(brokers: ThreeBrokers, node_id: int) -> int:
    """Read a whole replica from its disk; return the number of damaged places."""
    partition = brokers.partition(node_id)
    assert partition is not None
    log = partition.log
    count = 0
    for offset in range(log.log_start_offset, log.log_end_offset):
        try:
            part = log.read(offset, max_bytes=1, high_watermark=log.log_end_offset)
            assert part is not None
            part.load()
        except CorruptRecordError as error:
            count += 1
            partition.damage_found(error)
    return count


def knows_that_it_is_in_sync(brokers: ThreeBrokers, node_id: int) -> bool:
    """Return whether a broker knows that its replica is in the ISR."""
    partition = brokers.partition(node_id)
    if partition is None:
        return False
    known = brokers.state(node_id).partition(*partition.key)
    return known is not None and node_id in known.in_sync_replicas


async def leave_and_come_back(brokers: ThreeBrokers, node_id: int) -> None:
    """Wait until a replica that was found to be damaged has left the ISR and is repaired."""
    await until(lambda: node_id not in brokers.in_sync(), 2)
    await until(lambda: brokers.in_sync() == set(NODES), 30)
    assert not is_damaged(brokers, node_id)


def is_damaged(brokers: ThreeBrokers, node_id: int) -> bool:
    partition = brokers.partition(node_id)
    return partition is not None and bool(partition.log.damage)


async def with_records(
    brokers: ThreeBrokers, go_on: Callable[[Client, Acknowledged], Awaitable[None]]
) -> None:
    """Run `go_on` with records in several segments on all replicas."""

    async def work(client: Client) -> None:
        await make_topic(client)
        await until(lambda: brokers.in_sync() == set(NODES))
        acknowledged = await produce(client, 120)
        await brokers.all_in_sync()
        await go_on(client, acknowledged)

    await brokers.with_client(work)
