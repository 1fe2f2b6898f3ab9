"""Tests of HOT_KEYS for queues: message groups are counted exactly."""

from trio.testing import MockClock

from tests.broker.broker_requests import submit
from tests.broker.queues.queue_requests import create_queue, outgoing, receive, submit_send
from tests.broker.world import World
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.hot_keys import HotGroup, HotKeysRequest
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection


async def groups(client: RpcConnection, queue: bytes, limit: int = 10) -> list[HotGroup]:
    request = HotKeysRequest(queue, [0], limit)
    (partition,) = (await submit(client, api.HOT_KEYS, request).reply()).partitions
    assert partition.error is None
    return partition.groups


async def fill(client: RpcConnection, queue: bytes, sizes: dict[bytes | None, int]) -> None:
    for group, count in sizes.items():
        messages = [(b"v", None)] * count
        await submit_send(client, queue, outgoing(queue, *messages, group=group)).reply()


async def test_the_largest_groups_of_a_fifo_queue_are_exact(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        long = b"g" * 200
        await fill(client, queue, {b"a": 3, b"b": 7, long: 5})

        assert len(await receive(client, queue, max_messages=2)) == 2

        assert await groups(client, queue) == [
            HotGroup(b"b", 1, 7, 0),
            HotGroup(long[:128], 200, 5, 0),
            HotGroup(b"a", 1, 3, 2),
        ]
        assert await groups(client, queue, 1) == [HotGroup(b"b", 1, 7, 0)]


async def test_a_queue_with_fair_delivery_has_groups(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, fair_delivery="true")
        await fill(client, queue, {b"a": 3, None: 9, b"b": 4})

        assert await groups(client, queue) == [HotGroup(b"b", 1, 4, 0), HotGroup(b"a", 1, 3, 0)]


async def test_a_standard_queue_has_no_groups(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await fill(client, queue, {b"a": 3})

        assert await groups(client, queue) == []


async def test_a_partition_that_does_not_exist_has_an_error(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)

        reply = await submit(client, api.HOT_KEYS, HotKeysRequest(queue, [5])).reply()

        (partition,) = reply.partitions
        assert partition.error is not None
        assert partition.error.code == ErrorCode.UNKNOWN_PARTITION
