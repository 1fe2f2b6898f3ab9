"""Tests of data directories that come back from a copy, and of the advice of errors about them."""

import shutil
from pathlib import Path

import trio

import tidelog
from tests.system.integration.nodes import Nodes
from tests.system.integration.processes import DEADLINE_S

TOPIC = "orders"
PARTITIONS = 3
HALF = 300
Places = dict[tuple[int, int], bytes]
"""Values by partition and offset."""


async def produce(client: tidelog.Client, count: int) -> Places:
    """Append records with `acks=all`; return their places."""
    values = [b"%d" % number for number in range(count)]
    places: Places = {}
    async with client.producer(acks="all") as producer:
        for receipt in await producer.send_many(TOPIC, values, keys=values):
            assert receipt.offset is not None
            for place, index in enumerate(receipt.indexes):
                places[receipt.partition, receipt.offset + place] = values[index]
    return places


async def read_all(client: tidelog.Client) -> Places:
    async with client.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
        return {
            (record.partition, record.offset): record.value or b""
            async for batch in consumer.batches(await consumer.end_offsets())
            for record in batch
        }


async def whole(client: tidelog.Client) -> None:
    """Wait until three nodes vote and run, and all replicas are in sync."""
    while True:
        cluster = await client.admin.describe_cluster()
        nodes = [(node.role, node.status) for node in cluster.nodes]
        if nodes == [("voter", "alive")] * 3 and not cluster.under_replicated_count:
            return
        await trio.sleep(0.1)


async def listens(nodes: Nodes, node_id: int) -> None:
    host, _, port = nodes.address(node_id).rpartition(":")
    while True:
        try:
            stream = await trio.open_tcp_stream(host, int(port))
        except OSError:
            await trio.sleep(0.05)
        else:
            await stream.aclose()
            return


async def test_a_restored_directory_loses_no_acknowledged_record(tmp_path: Path) -> None:
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            nodes = Nodes(tmp_path, nursery)
            await nodes.start(1, 2, 3)
            async with tidelog.connect(nodes.addresses) as client:
                await client.admin.create_topic(
                    TOPIC, PARTITIONS, replication_factor=3, min_insync_replicas=2
                )
                await whole(client)
                acknowledged = await produce(client, HALF)
                await nodes.stop_and_wait(1)
                shutil.copytree(tmp_path / "1", tmp_path / "copy")
                await nodes.start(1)
                await whole(client)
                acknowledged |= await produce(client, HALF)
            for node_id in nodes.ids:
                await nodes.kill_and_wait(node_id)

            shutil.rmtree(tmp_path / "1")
            (tmp_path / "copy").rename(tmp_path / "1")
            async with trio.open_nursery() as starting:
                starting.start_soon(nodes.start, 1)
                await listens(nodes, 1)
                starting.start_soon(nodes.start, 2, 3)

            async with tidelog.connect(nodes.addresses) as client:
                await whole(client)
                assert await read_all(client) == acknowledged
                assert len(acknowledged) == 2 * HALF
            log = nodes.process(1)
            assert log.event("metadata_is_old")["level"] == "warning"
            old = log.event("directory_is_old")
            assert old["directory_epoch"] < old["known_epoch"]
            nursery.cancel_scope.cancel()
