"""How far many partitions go: every broker can be asked, and each leader answers for its own."""

from collections.abc import Awaitable, Callable
from functools import partial

import trio
from trio.testing import MockClock

from tests.broker.asking import batch_of, create_topic, delete_records, submit, submit_produce
from tests.broker.asking import produce as produce_to
from tests.broker.replication.three_brokers import (
    NODES,
    TOPIC,
    ThreeBrokers,
    connected,
    live,
    make_topic,
    produce,
)
from tests.broker.world import World, settle
from tests.coordinator.raft_life import until
from tests.simulation.machine.process import Process
from tidelog.client.client import Client
from tidelog.wire.messages.offset_ranges import TopicExtents, TopicExtentsRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.rpc import RpcConnection

PARTITIONS = 6


async def extents(
    connection: RpcConnection, names: list[str] | None, *, with_sizes: bool = False
) -> list[TopicExtents]:
    request = TopicExtentsRequest(names, with_sizes)
    return (await submit(connection, api.TOPIC_EXTENTS, request).reply()).topics


async def asked(
    brokers: ThreeBrokers, node_id: int, use: Callable[[RpcConnection], Awaitable[None]]
) -> None:
    """Let somebody on a machine of its own use a connection to a broker."""
    done = trio.Event()

    async def run(process: Process) -> None:
        async with connected(process, node_id) as connection:
            await use(connection)
        done.set()

    brokers.world.add_node(f"asker{len(brokers.world.nodes)}").start(run)
    await done.wait()


async def test_a_broker_says_how_far_partitions_go(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        other = await create_topic(client, "other", partitions=3)
        await produce_to(client, topic, batch_of(b"a", b"b", b"c"))
        await delete_records(client, topic, 1)
        world.work.hold_syncs()
        pending = submit_produce(client, topic, batch_of(b"not committed"))
        await settle()

        assert await extents(client, ["other", "gone", "orders"]) == [
            TopicExtents("other", other, [0] * 3, [0] * 3, [], []),
            TopicExtents("orders", topic, [1], [3], [], []),
        ]
        assert [each.name for each in await extents(client, None)] == ["orders", "other"]
        (sized,) = await extents(client, ["orders"], with_sizes=True)
        assert sized.sizes_bytes[0] > 0
        world.work.let_all_sync()
        await pending.reply()


def test_every_broker_knows_it_of_all_leaders() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client, PARTITIONS)
            for number in range(PARTITIONS):
                await produce(client, number, partition=number)

        await brokers.with_client(work)
        leaders = {brokers.leader(number=number) for number in range(PARTITIONS)}
        assert leaders == set(NODES)

        async def compare(connection: RpcConnection) -> None:
            (topic,) = await extents(connection, [TOPIC], with_sizes=True)
            assert topic.high_watermarks == list(range(PARTITIONS))
            assert topic.unknown_partitions == []
            assert [size > 0 for size in topic.sizes_bytes] == [True] * PARTITIONS

        for node_id in NODES:
            await until(partial(brokers.knows, node_id, TOPIC))
            await asked(brokers, node_id, compare)

    live(1, main)


def test_what_a_leader_that_does_not_answer_has_is_unknown_and_the_rest_is_known() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client, PARTITIONS)
            for number in range(PARTITIONS):
                await produce(client, 2, partition=number)

        await brokers.with_client(work)
        silent, node_id = (node for node in NODES if node != brokers.controller())
        of_silent = [each for each in range(PARTITIONS) if brokers.leader(number=each) == silent]
        assert of_silent
        brokers.kill(silent)

        async def look(connection: RpcConnection) -> None:
            (topic,) = await extents(connection, [TOPIC])
            assert topic.unknown_partitions == of_silent
            ends = [0 if each in of_silent else 2 for each in range(PARTITIONS)]
            assert topic.high_watermarks == ends

        await asked(brokers, node_id, look)

        async def all_is_known(connection: RpcConnection) -> None:
            while True:
                (topic,) = await extents(connection, [TOPIC])
                if not topic.unknown_partitions:
                    assert topic.high_watermarks == [2] * PARTITIONS
                    return
                await trio.sleep(0.1)

        await asked(brokers, node_id, all_is_known)

    live(2, main)
