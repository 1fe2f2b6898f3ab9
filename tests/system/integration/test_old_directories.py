"""Tests of data directories that come back from a copy, and of the advice of errors about them."""

import shutil
import signal
from pathlib import Path

import trio

import tidelog
from tests.system.integration.nodes import Nodes
from tests.system.integration.processes import DEADLINE_S, only_line, run_tidelog, serving

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


async def produce_to_whole(client: tidelog.Client) -> Places:
    """Create the topic, and append the first half when all replicas are in sync."""
    await client.admin.create_topic(TOPIC, PARTITIONS, replication_factor=3, min_insync_replicas=2)
    await whole(client)
    return await produce(client, HALF)


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
                acknowledged = await produce_to_whole(client)
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


async def test_a_broker_with_a_damaged_node_file_is_replaced_as_its_error_says(
    tmp_path: Path,
) -> None:
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            nodes = Nodes(tmp_path, nursery)
            await nodes.start(1, 2, 3)
            async with tidelog.connect(nodes.addresses) as client:
                acknowledged = await produce_to_whole(client)
                await nodes.stop_and_wait(1)
                damaged = tmp_path / "1" / "node"
                content = bytearray(damaged.read_bytes())
                content[-1] ^= 1
                damaged.write_bytes(content)

                refused = await run_tidelog(
                    *("serve", "--node-id", "1", "--data-dir", str(tmp_path / "1")),
                    *("--listen", nodes.address(1)),
                )

                assert refused.returncode == 1
                said = only_line(refused)
                assert "node does not match its length and CRC-32C; " in said
                assert "move the directory away and start the broker with an empty one" in said
                (tmp_path / "1").rename(tmp_path / "moved away")
                await nodes.start(1)
                await whole(client)
                acknowledged |= await produce(client, HALF)
            # The new directory has everything, and its node is one of the majority.
            await nodes.kill_and_wait(2)
            async with tidelog.connect(nodes.addresses) as client:
                assert await read_all(client) == acknowledged
                assert len(acknowledged) == 2 * HALF
            nursery.cancel_scope.cancel()


async def test_a_single_broker_without_metadata_is_restored_as_its_error_says(
    tmp_path: Path,
) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    with trio.fail_after(DEADLINE_S):
        async with serving(data) as broker:
            async with tidelog.connect(broker.address) as client:
                await client.admin.create_topic(TOPIC, PARTITIONS)
                before = await produce(client, HALF)
            broker.signal(signal.SIGTERM)
            await broker.wait_ended()
        shutil.copytree(data, copy)
        async with serving(data) as broker, tidelog.connect(broker.address) as client:
            await produce(client, HALF)
        shutil.rmtree(data / "metadata")

        listen = ("--listen", "127.0.0.1:0", "--http-listen", "")
        refused = await run_tidelog("serve", "--data-dir", str(data), *listen)

        assert refused.returncode == 1
        said = only_line(refused)
        assert "has lost the metadata of cluster" in said
        assert said.endswith(
            "restore the whole data directory from a backup, which loses the records since"
        )
        shutil.rmtree(data)
        copy.rename(data)
        async with serving(data) as broker, tidelog.connect(broker.address) as client:
            assert await read_all(client) == before
            assert "directory_is_old" not in broker.names()
