"""The check of alerts against a real broker, in virtual time."""

import trio
from trio.testing import MockClock

from tests.broker.world import World
from tests.client.clients import client_of
from tidelog.client.admin.alerts import AlertReport
from tidelog.client.admin.queues import describe_existing_queues
from tidelog.client.client import Client

MINUTE_S = 60


def names(report: AlertReport) -> list[tuple[str, str]]:
    assert report.unknown == ()
    return [(each.name, each.subject) for each in report.alerts]


async def test_an_old_message_fires_until_it_is_deleted(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        await client.admin.create_queue("payments", alert_age=5 * MINUTE_S, owner="team")
        queue = client.queue("payments")
        await queue.send(b"one")
        await trio.sleep(4 * MINUTE_S)
        assert names(await client.admin.alerts()) == []
        await trio.sleep(3 * MINUTE_S)

        report = await client.admin.alerts()
        (alert,) = report.alerts
        assert (alert.name, alert.subject, alert.owner) == ("QueueTooOld", "queue payments", "team")
        assert alert.value is not None
        assert alert.since_ms is not None
        assert 7 * MINUTE_S <= alert.value / 1000 < 7 * MINUTE_S + 5
        assert 2 * MINUTE_S <= (report.at_ms - alert.since_ms) / 1000 < 2 * MINUTE_S + 5
        for message in await queue.receive(10):
            await message.delete()

        assert names(await client.admin.alerts()) == []


async def test_dead_letters_fire_until_they_are_gone(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        await client.admin.create_queue("dead", alert_depth=0)
        await client.admin.create_queue("payments", dead_letter_queue="dead", alert_dead_letters=0)
        queue = client.queue("payments")
        await queue.send(b"one")
        for message in await queue.receive(10):
            await message.reject("bad")
        await trio.sleep(MINUTE_S)

        assert names(await client.admin.alerts()) == [
            ("QueueTooDeep", "queue dead"),
            ("QueueDeadLetters", "queue payments"),
        ]
        await client.admin.alter_queue("dead", reset=["alert_depth"])
        assert names(await client.admin.alerts()) == [("QueueDeadLetters", "queue payments")]
        await client.queue("dead").purge()
        assert names(await client.admin.alerts()) == []


async def test_a_lag_fires_until_it_is_committed(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        admin = client.admin
        await admin.create_topic("orders")
        await admin.reset_offsets("billing", "orders", "earliest")
        await admin.alter_group("billing", set={"alert_lag": 60, "alert_lag_records": 1})
        await admin.alter_group("other", set={"alert_lag_records": 0, "owner": "team"})
        async with client.producer() as producer:
            await producer.send_many("orders", [b"one", b"two"])
        await trio.sleep(2 * MINUTE_S)

        report = await admin.alerts()
        assert names(report) == [("GroupLag", "group billing")] * 2
        assert [each.unit for each in report.alerts] == ["ms", "records"]
        assert names(await admin.alerts(owner="team")) == []
        await admin.reset_offsets("billing", "orders", "latest")

        assert names(await admin.alerts()) == []


async def test_many_queues_are_read_in_pages_and_one_owner_sees_only_its_own(
    autojump_clock: MockClock,
) -> None:
    async with client_of(World(autojump_clock)) as client:
        await client.admin.create_topic("orders")
        for number in range(7):
            await _create(client, f"q{number}", owner=f"team{number % 2}")
        async with client.producer() as producer:
            await producer.send("orders", b"one")

        found = await client.admin.alerts()
        of_owner = await client.admin.alerts(owner="team1")

        assert names(found) == [("QueueTooDeep", f"queue q{number}") for number in range(7)]
        assert names(of_owner) == [("QueueTooDeep", f"queue q{number}") for number in (1, 3, 5)]


async def _create(client: Client, name: str, *, owner: str) -> None:
    await client.admin.create_queue(name, topic="orders", alert_depth=0, owner=owner)


async def test_a_queue_that_is_deleted_meanwhile_is_left_out(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        await client.admin.create_topic("orders")
        for name in "abc":
            await _create(client, name, owner="team")
        cluster = client.admin._cluster  # pyright: ignore[reportPrivateUsage]

        found = await describe_existing_queues(cluster, ["a", "gone", "c"])

        assert [queue.name for queue in found] == ["a", "c"]
