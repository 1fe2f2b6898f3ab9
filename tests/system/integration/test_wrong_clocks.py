"""Three brokers as real processes, of which one has a clock that jumps and comes back."""

import signal
from pathlib import Path
from typing import Literal

import trio

import tidelog
from tests.system.integration.jumping_clock import jumping
from tests.system.integration.nodes import Nodes
from tests.system.integration.processes import DEADLINE_S

RECORDS = "records"
SIZED = "sized"
"""A topic with retention by size: it shows that a pass of the retention has ended."""
VALUE = bytes(1900)
COUNT = 20
DAY_S = 24 * 3600
HOUR_S = 3600
LATE_MAX_S = 5.0
"""A lease may end so much later than its visibility timeout."""


async def leaders(client: tidelog.Client, topic: str) -> list[int]:
    """Return the leader of each partition, once all replicas are in sync."""
    while True:
        (described,) = await client.admin.describe_topics([topic])
        found = [each.leader_id for each in described.partitions if each.leader_id is not None]
        in_sync = sum(len(each.in_sync_replicas) for each in described.partitions)
        if in_sync == len(Nodes.ids) * len(found) == len(Nodes.ids) * len(described.partitions):
            return found
        await trio.sleep(0.05)


async def produce(client: tidelog.Client, topic: str, partition: int = 0) -> None:
    async with client.producer() as producer:
        for _ in range(COUNT):
            await producer.send(topic, VALUE, partition=partition)


async def end_of(client: tidelog.Client, at: Literal["earliest", "latest"]) -> int | None:
    return (await client.admin.list_offsets(RECORDS, at))[0].offset


async def wait_retention(client: tidelog.Client, partition: int) -> None:
    """Wait until the leader of a partition of the other topic has looked at its logs once more."""

    async def start() -> int | None:
        return (await client.admin.list_offsets(SIZED, "earliest"))[partition].offset

    before = await start()
    await produce(client, SIZED, partition)
    while True:
        if await start() != before:
            return
        await trio.sleep(0.05)


async def test_a_clock_that_is_a_week_ahead_for_seconds_deletes_nothing(tmp_path: Path) -> None:
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            settings = tmp_path / "tidelog.toml"
            settings.write_text("maintenance_interval_ms = 100\n")
            config = ("--config", str(settings))
            nodes = Nodes(tmp_path, nursery, *config, program=jumping(8 * DAY_S))
            await nodes.start(*nodes.ids)
            async with tidelog.connect(nodes.addresses) as client:
                segments = {"segment_bytes": "4KiB"}
                await client.admin.create_topic(
                    RECORDS, 1, replication_factor=3, config={"retention_ms": "7d", **segments}
                )
                await client.admin.create_topic(
                    SIZED, 3, replication_factor=3, config={"retention_bytes": "8KiB", **segments}
                )
                await produce(client, RECORDS)
                (leader_id,) = await leaders(client, RECORDS)
                other = (await leaders(client, SIZED)).index(leader_id)
                wrong = nodes.process(leader_id)

                wrong.signal(signal.SIGUSR1)
                skewed = await wrong.wait_event("clock_skewed")
                await wait_retention(client, other)
                await produce(client, RECORDS)
                wrong.signal(signal.SIGUSR2)
                await wrong.wait_event("clock_in_bounds")
                await wait_retention(client, other)

                assert skewed["level"] == "warning"
                assert (await leaders(client, RECORDS)) == [leader_id]
                assert await end_of(client, "earliest") == 0
                assert await end_of(client, "latest") == 2 * COUNT
            nursery.cancel_scope.cancel()


async def test_a_lease_ends_in_time_after_a_clock_was_an_hour_ahead(tmp_path: Path) -> None:
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            nodes = Nodes(tmp_path, nursery, program=jumping(HOUR_S))
            await nodes.start(*nodes.ids)
            async with tidelog.connect(nodes.addresses) as client:
                await client.admin.create_topic(RECORDS, 1, replication_factor=3)
                await client.admin.create_queue("work", topic=RECORDS, visibility_timeout="2s")
                await produce(client, RECORDS)
                (leader_id,) = await leaders(client, RECORDS)
                wrong = nodes.process(leader_id)
                queue = client.queue("work")

                wrong.signal(signal.SIGUSR1)
                await wrong.wait_event("clock_skewed")
                received = await queue.receive(COUNT, wait=10)
                wrong.signal(signal.SIGUSR2)

                with trio.fail_after(2 + LATE_MAX_S):
                    again = await queue.receive(COUNT, wait=10)
                assert {each.receive_count for each in received} == {1}
                assert {each.receive_count for each in again} == {2}
            nursery.cancel_scope.cancel()
