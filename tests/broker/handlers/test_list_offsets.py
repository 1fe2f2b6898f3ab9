"""Tests of LIST_OFFSETS for many partitions: any broker returns the offsets of all leaders."""

from collections.abc import Awaitable, Callable
from functools import partial

import trio
from trio.testing import MockClock

from tests.broker.broker_requests import (
    batch_of,
    create_topic,
    delete_records,
    submit,
    submit_produce,
)
from tests.broker.broker_requests import produce as produce_to
from tests.broker.queues.queue_requests import create_queue, purge, topic_of
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
from tests.coordinator.raft_clients import until
from tests.simulation.machine.process import Process
from tidelog.client.client import Client
from tidelog.wire.messages.offset_ranges import ListOffsetsRequest, OffsetQuery, TopicOffsets
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection

PARTITIONS = 6


async def topic_offsets(
    connection: RpcConnection,
    names: list[str] | None,
    *,
    with_sizes: bool = False,
    from_journals: bool = False,
) -> list[TopicOffsets]:
    request = ListOffsetsRequest(
        [], topics=names, with_sizes=with_sizes, from_journals=from_journals
    )
    return (await submit(connection, api.LIST_OFFSETS, request).reply()).topics


async def asked(
    brokers: ThreeBrokers, node_id: int, use: Callable[[RpcConnection], Awaitable[None]]
) -> None:
    """Use a connection to a broker from a machine of its own."""
    done = trio.Event()

    async def run(process: Process) -> None:
        async with connected(process, node_id) as connection:
            await use(connection)
        done.set()

    brokers.world.add_node(f"asker{len(brokers.world.nodes)}").start(run)
    await done.wait()


async def test_list_offsets_returns_the_ends_of_partitions(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        other = await create_topic(client, "other", partitions=3)
        await produce_to(client, topic, batch_of(b"a", b"b", b"c"))
        await delete_records(client, topic, 1)
        world.work.hold_syncs()
        pending = submit_produce(client, topic, batch_of(b"not committed"))
        await settle()

        assert await topic_offsets(client, ["other", "gone", "orders"]) == [
            TopicOffsets("other", other, [0] * 3, [0] * 3, [], []),
            TopicOffsets("orders", topic, [1], [3], [], []),
        ]
        assert [each.name for each in await topic_offsets(client, None)] == ["orders", "other"]
        (sized,) = await topic_offsets(client, ["orders"], with_sizes=True)
        assert sized.sizes_bytes[0] > 0
        world.work.let_all_sync()
        await pending.reply()


async def test_list_offsets_returns_the_ends_of_journals(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce_to(client, topic_of(broker), batch_of(b"a", b"b"))
        await purge(client, queue)
        query = ListOffsetsRequest([OffsetQuery(queue, 0)], from_journals=True)
        (of_journal,) = (await client.ask(api.LIST_OFFSETS, query)).partitions
        end = of_journal.high_watermark

        found = await topic_offsets(client, ["gone", "orders"], from_journals=True)

        assert found == [TopicOffsets("orders", queue, [0], [end], [], [])]
        assert await topic_offsets(client, None, from_journals=True) == found
        (of_topic,) = await topic_offsets(client, None)
        assert of_topic.topic_id == topic_of(broker)
        assert end > 0


def test_every_broker_lists_the_offsets_of_all_leaders() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client, PARTITIONS)
            for number in range(PARTITIONS):
                await produce(client, number, partition=number)

        await brokers.with_client(work)
        leaders = {brokers.leader(number=number) for number in range(PARTITIONS)}
        assert leaders == set(NODES)

        async def compare(connection: RpcConnection) -> None:
            (topic,) = await topic_offsets(connection, [TOPIC], with_sizes=True)
            assert topic.high_watermarks == list(range(PARTITIONS))
            assert topic.unknown_partitions == []
            assert [size > 0 for size in topic.sizes_bytes] == [True] * PARTITIONS

        for node_id in NODES:
            await until(partial(brokers.knows, node_id, TOPIC))
            await asked(brokers, node_id, compare)

    live(1, main)


def test_offsets_of_an_unreachable_leader_are_unknown_and_the_rest_is_known() -> None:
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
            (topic,) = await topic_offsets(connection, [TOPIC])
            assert topic.unknown_partitions == of_silent
            ends = [0 if each in of_silent else 2 for each in range(PARTITIONS)]
            assert topic.high_watermarks == ends

        await asked(brokers, node_id, look)

        async def all_is_known(connection: RpcConnection) -> None:
            while True:
                (topic,) = await topic_offsets(connection, [TOPIC])
                if not topic.unknown_partitions:
                    assert topic.high_watermarks == [2] * PARTITIONS
                    return
                await trio.sleep(0.1)

        await asked(brokers, node_id, all_is_known)

    live(2, main)
