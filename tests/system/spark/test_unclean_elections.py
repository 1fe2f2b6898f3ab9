"""Tests of streams over a topic that lost records in an unclean election of its leader."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from pyspark.errors import PySparkException

import tidelog
from tests.system.integration.nodes import Nodes
from tests.system.integration.processes import DEADLINE_S
from tests.system.spark.test_streams import Sink, numbers
from tests.system.spark.world import World

KEPT, LOST, WRITTEN = 10, 5, 20
"""Records of both replicas; then of the lost one only; then, in their place, of the other one."""


async def partition_of(client: tidelog.Client, topic: str) -> tuple[int | None, set[int]]:
    """Return the leader and the ISR of the only partition."""
    (described,) = await client.admin.describe_topics([topic])
    (partition,) = described.partitions
    return partition.leader_id, set(partition.in_sync_replicas)


async def write(client: tidelog.Client, topic: str, *bounds: int) -> None:
    async with client.producer() as producer:
        await producer.send_many(topic, numbers(*bounds), partition=0)


async def write_to_one(nodes: Nodes, client: tidelog.Client, topic: str) -> tuple[int, int]:
    """Write records of both replicas, then of the leader alone; return leader and follower."""
    await client.admin.create_topic(topic, 1, replication_factor=2)
    await write(client, topic, KEPT)
    leader, in_sync = await partition_of(client, topic)
    assert leader is not None
    (follower,) = in_sync - {leader}
    await nodes.kill_and_wait(follower)
    while True:
        if (await partition_of(client, topic))[1] == {leader}:
            break
        await trio.sleep(0.05)
    await write(client, topic, KEPT, KEPT + LOST)
    return leader, follower


async def elect(client: tidelog.Client, topic: str, node_id: int) -> None:
    """Let a replica lead that lacks records."""
    while (await partition_of(client, topic))[0] != node_id:
        with suppress(tidelog.TidelogError):  # The controller is being elected.
            await client.admin.elect_leaders([(topic, 0)], accept_data_loss=True)
        await trio.sleep(0.1)


@pytest.mark.parametrize("accepts_loss", [False, True])
async def test_a_stream_over_an_unclean_election_ends_or_reads_the_new_records(
    world: World, tmp_path: Path, *, accepts_loss: bool
) -> None:
    sink, topic = Sink(tmp_path), world.topic
    options = {"failOnDataLoss": "false"} if accepts_loss else {}
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            nodes = Nodes(tmp_path / "nodes", nursery)
            await nodes.start(*nodes.ids)

            async def read() -> None:
                stream = replace(world, address=nodes.addresses).stream(**options)
                await trio.to_thread.run_sync(lambda: sink.run(stream))

            async with tidelog.connect(nodes.addresses) as client:
                leader, follower = await write_to_one(nodes, client, topic)
                await read()
                await nodes.kill_and_wait(leader)
                await nodes.start(follower)
                await elect(client, topic, follower)
                await write(client, topic, 100, 100 + WRITTEN)

                if accepts_loss:
                    await read()
                else:
                    gone = rf"{topic}/0 .*: offsets \[{KEPT}, {KEPT + LOST}\) were read"
                    with pytest.raises(PySparkException, match=gone):
                        await read()
            nursery.cancel_scope.cancel()

    rows = numbers(KEPT + LOST) + (numbers(100, 100 + WRITTEN) if accepts_loss else [])
    assert sink.values == rows
