"""The check of alerts against a real broker, in virtual time."""

import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from tests.broker.world import World
from tests.client.admin.test_cluster_health import described
from tests.client.clients import client_of
from tests.client.fake_cluster import fronted_client, fronted_cluster
from tidelog.client.admin import alerts
from tidelog.client.admin.alerts import AlertReport
from tidelog.client.admin.queues import describe_existing_queues
from tidelog.client.client import Client
from tidelog.wire.errors import TidelogError
from tidelog.wire.protocol import api

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


async def test_a_full_disk_fires_until_it_has_room(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client, client.producer(delivery_timeout=1) as producer:
        await client.admin.create_topic("orders")
        await producer.send("orders", b"one")
        assert names(await client.admin.alerts()) == []
        world.disk.capacity_bytes = 0
        with pytest.raises(TidelogError):
            await producer.send("orders", b"two")
        await trio.sleep(MINUTE_S)

        assert names(await client.admin.alerts()) == [("DiskReadOnly", "node 1")]
        assert names(await client.admin.alerts(owner="team")) == []
        world.disk.capacity_bytes = None
        await trio.sleep(MINUTE_S)

        assert names(await client.admin.alerts()) == []


async def test_a_controller_that_does_not_answer_is_waited_for_a_few_seconds(
    autojump_clock: MockClock,
) -> None:
    async with fronted_cluster(autojump_clock, [1, 2]) as cluster:
        healthy, gone_at = described(), trio.current_time()

        async def describe_cluster(_node_id: int, _request: object) -> object:
            age_ms = round(1000 * (trio.current_time() - gone_at))
            return replace(healthy, metadata_age_ms=age_ms)

        async def no_answer(_node_id: int, _request: object) -> object:
            return await trio.sleep_forever()

        cluster.answers[api.DESCRIBE_CLUSTER] = describe_cluster  # type: ignore[index]
        cluster.answers[api.LIST_GROUPS] = no_answer  # type: ignore[index]
        async with fronted_client(cluster) as client:
            report = await client.admin.alerts()

        assert [each.name for each in report.alerts] == ["NoController"]
        assert report.unknown == ("cluster", "groups", "queues")
        assert trio.current_time() - gone_at < 7


async def test_many_names_of_transactions_fire_until_they_are_forgotten(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerts, "NAMES_WARNED", 2)
    async with client_of(World(autojump_clock)) as client:
        await trio.sleep(MINUTE_S)  # The cluster has its feature level.
        for name in ("a", "b", "c"):
            await client.transaction(name, 0).commit([])
        await trio.sleep(11 * MINUTE_S)
        assert names(await client.admin.alerts()) == [("TransactionNamesMany", "cluster")]

        assert await client.admin.forget_transactions(["a"], unused_for=10 * MINUTE_S) == {}

        assert names(await client.admin.alerts()) == []
