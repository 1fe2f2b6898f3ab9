"""Metrics of consumer groups: lag in records and in time, members, and which groups are shown."""

import trio
from trio.testing import MockClock

from tests.broker.collectors.readings import Readings, read_metrics
from tests.broker.world import ADDRESS, World
from tidelog.client.client import Client, connect

BROKER = "{}:{}".format(*ADDRESS)


async def read_some(client: Client, group_id: str, count: int) -> None:
    """Read and commit some records of the topic as the only member of a group."""
    async with client.consumer(
        "orders", group_id=group_id, auto_offset_reset="earliest"
    ) as consumer:
        left = count
        async for _ in consumer:
            left -= 1
            if not left:
                break
        await consumer.commit()


def of_group(readings: Readings, group_id: str) -> dict[str, float]:
    return {key[0]: value for key, value in readings.items() if key[1] == group_id}


async def test_groups_have_lag_in_records_and_in_time(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with world.broker(), world.client() as reader, connect(BROKER, env=world.env) as client:
        await client.admin.create_topic("orders", partitions=1)
        async with client.producer() as producer:
            for number in range(10):
                await producer.send("orders", b"%d" % number)
        await read_some(client, "readers", 4)
        await trio.sleep(90)
        behind = of_group(await read_metrics(reader, "group"), "readers")
        await client.admin.delete_records("orders", 0, 7)
        await trio.sleep(1)  # Leaders are not asked again at once.
        lost = of_group(await read_metrics(reader, "group"), "readers")

    assert behind["group_lag_records"] == 6
    assert 90 <= behind["group_lag_seconds"] < 100
    assert (behind["group_lost_records"], behind["group_members"]) == (0, 0)
    assert behind["group_epoch"] >= 1
    assert (lost["group_lag_records"], lost["group_lost_records"]) == (3, 3)


async def test_groups_with_settings_are_shown_before_others(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with (
        world.broker(metrics_objects_max=2),
        world.client() as reader,
        connect(BROKER, env=world.env) as client,
    ):
        for group_id in ("a", "b", "c"):
            await client.admin.alter_group(group_id, set={"owner": "team"})
            await client.admin.alter_group(group_id, reset=["owner"])
        await client.admin.alter_group("z", set={"alert_lag": 60})

        readings = await read_metrics(reader, "group_members")

    assert set(readings) == {("group_members", "z"), ("group_members", "a")}
