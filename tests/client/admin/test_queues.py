"""Administration of queues through the client, executed by a real broker."""

from typing import Any

import pytest
from msgspec.structs import replace
from trio.testing import MockClock

from tests.broker.world import START_MS, World
from tests.client.clients import client_of
from tidelog.broker.handlers import queue_admin
from tidelog.client.admin.queue_batches import NewQueue
from tidelog.client.admin.queue_counts import MessageCounts, count_messages, sum_of
from tidelog.client.admin.queues import Setting, name_of_setting, settings_as_text
from tidelog.client.admin.redrive_status import report_of, reports_of
from tidelog.wire.config.queue_config import ALERT_SETTINGS
from tidelog.wire.errors import (
    InvalidConfigError,
    InvalidRequestError,
    InvalidTopicError,
    QueueExistsError,
    TopicExistsError,
    UnknownQueueError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from tidelog.wire.messages.features import OWN_LEVELS
from tidelog.wire.messages.queue_admin import QUEUES_CREATED_MAX
from tidelog.wire.messages.queues import QueueCounts
from tidelog.wire.messages.redrives import RedriveDescription, RedriveStatus
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api
from tidelog.wire.transport.rpc import RpcConnection


async def test_the_lifecycle_of_a_queue(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        admin = client.admin

        made = await admin.create_queue("orders", partitions=3, visibility_timeout=60)
        (queue,) = await admin.describe_queues(["orders"])

        assert (queue.queue_id, queue.topic_id) == (made.queue_id, made.topic_id)
        assert (queue.name, queue.topic, queue.is_fifo) == ("orders", "orders", False)
        assert queue.created_at_ms >= START_MS
        assert queue.config["visibility_timeout_ms"] == "60000ms"
        assert queue.config_overrides == ["visibility_timeout_ms"]
        assert [(each.leader_id, each.start_offset) for each in queue.partitions] == [(1, 0)] * 3
        assert await admin.list_topics() == ["orders"]
        settings = await admin.alter_queue(
            "orders", set={"max_receive_count": 5}, reset=["visibility_timeout"]
        )
        assert settings["max_receive_count"] == "5"
        assert settings["visibility_timeout_ms"] == "30s"
        with pytest.raises(InvalidRequestError, match="has queues: orders"):
            await admin.delete_topic("orders")
        await admin.delete_queue("orders")
        assert await admin.list_queues() == []
        assert await admin.list_topics() == ["orders"]


@pytest.mark.parametrize("peer", ["of this version", "below the level", "without the request"])
async def test_many_queues_are_created_and_each_has_a_result(
    peer: str, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    if peer == "below the level":
        monkeypatch.setattr(queue_admin, "CREATE_QUEUES_LEVEL", OWN_LEVELS.max_level + 1)
    elif peer == "without the request":
        monkeypatch.setattr(RpcConnection, "version_of", _version_of_an_earlier_broker)
    async with client_of(World(autojump_clock)) as client:
        admin = client.admin
        await admin.create_topic("events", 2)
        async with client.producer() as producer:
            await producer.send("events", b"x", partition=0)

        results = await admin.create_queues(
            [
                "plain",
                NewQueue("dead", fifo=True),
                NewQueue("fifo", fifo=True, partitions=3, settings={"dead_letter_queue": "dead"}),
                NewQueue("tail", topic="events", start="latest", labels={"team": "billing"}),
                NewQueue("bad", settings={"visibility_timeout": 30, "visibility_timeout_ms": 1}),
                NewQueue("wrong", settings={"colour": "red"}),
                NewQueue("lost", topic="nowhere"),
                NewQueue("plain", fifo=True),
                NewQueue("kept", topic_config={"retention_ms": "1h"}, settings={"owner": "ops"}),
                NewQueue("fresh", new_topic=True),
                NewQueue("events", new_topic=True),
            ]
        )

        assert [(each.name, type(each.error)) for each in results] == [
            ("plain", type(None)),
            ("dead", type(None)),
            ("fifo", type(None)),
            ("tail", type(None)),
            ("bad", InvalidConfigError),
            ("wrong", InvalidConfigError),
            ("lost", UnknownTopicError),
            ("plain", QueueExistsError),
            ("kept", type(None)),
            ("fresh", type(None)),
            ("events", TopicExistsError),
        ]
        fifo, tail = await admin.describe_queues(["fifo", "tail"])
        assert (fifo.is_fifo, len(fifo.partitions)) == (True, 3)
        assert fifo.config["dead_letter_queue"] == "dead"
        assert [each.start_offset for each in tail.partitions] == [1, 0]
        assert tail.labels == {"team": "billing"}
        assert (await admin.describe_topics(["kept"]))[0].config["retention_ms"] == "1h"

        again = await admin.create_queues(["plain", "dead", NewQueue("fresh", new_topic=True)])

        assert [type(each.error) for each in again] == [type(None), QueueExistsError, type(None)]


def _version_of_an_earlier_broker(_: RpcConnection, method: Api[Any, Any]) -> int:
    if method is api.CREATE_QUEUES:
        raise UnsupportedVersionError("the broker does not know CREATE_QUEUES")
    return method.max_version


async def test_more_queues_than_a_request_may_have_are_created(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        names = [f"q-{number:03d}" for number in range(2 * QUEUES_CREATED_MAX + 1)]

        results = await client.admin.create_queues(names)

        assert [each.name for each in results if each.error is None] == names
        assert await client.admin.list_queues() == names


async def test_labels_of_a_new_queue_wait_for_the_first_feature_level(
    autojump_clock: MockClock,
) -> None:
    async with client_of(World(autojump_clock)) as client:
        admin = client.admin

        await admin.create_queue("orders", labels={"team": "billing", "note": "\u20ac 5"})

        await admin.alter_queue(
            "orders",
            set={"max_receive_count": 5},
            set_labels={"tier": "1"},
            remove_labels=["team", "missing"],
        )
        (queue,) = await admin.describe_queues(["orders"])
        assert queue.labels == {"note": "\u20ac 5", "tier": "1"}
        assert queue.config["max_receive_count"] == "5"
        with pytest.raises(InvalidConfigError, match="the labels have 65551 bytes of names"):
            await admin.alter_queue("orders", set_labels={"x": "y" * 65_536})
        with pytest.raises(QueueExistsError, match="it has a label 'note'"):
            await admin.create_queue("orders", max_receive_count=5, labels={"team": "billing"})


async def test_owner_and_alerts_are_set_changed_and_described(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        admin = client.admin

        await admin.create_queue("orders", owner="billing", alert_age=300)

        settings = await admin.alter_queue(
            "orders", set={"alert_depth": 1000, "alert_dead_letters": 0}, reset=["alert_age"]
        )
        (queue,) = await admin.describe_queues(["orders"])
        assert queue.config == settings
        assert {name: settings[name] for name in ALERT_SETTINGS} == {
            "owner": "billing",
            "alert_age_ms": "none",
            "alert_depth": "1000",
            "alert_dead_letters": "0",
        }
        assert queue.config_overrides == ["alert_dead_letters", "alert_depth", "owner"]
        with pytest.raises(InvalidConfigError, match=r"owner is .*, it must be none, or a text"):
            await admin.alter_queue("orders", set={"owner": "\n"})


async def test_queues_on_one_topic_start_at_their_own_offsets(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        await client.admin.create_topic("orders", 2)
        async with client.producer() as producer:
            for number in range(5):
                at = START_MS + number
                await producer.send("orders", b"%d" % number, partition=0, timestamp_ms=at)
        await client.admin.delete_records("orders", 0, 1)

        await client.admin.create_queue("all", topic="orders")
        await client.admin.create_queue("new", topic="orders", start="latest")
        await client.admin.create_queue("since", topic="orders", start=START_MS + 3)
        await client.admin.create_queue("future", topic="orders", start=START_MS + 10**6)

        queues = await client.admin.describe_queues()
        starts = {queue.name: [each.start_offset for each in queue.partitions] for queue in queues}
    assert starts == {"all": [1, 0], "new": [5, 0], "since": [3, 0], "future": [5, 0]}


async def test_creating_an_equal_queue_again_is_idempotent(
    autojump_clock: MockClock,
) -> None:
    async with client_of(World(autojump_clock)) as client:
        first = await client.admin.create_queue("orders", priority_weights="4,1")

        again = await client.admin.create_queue("orders", priority_weights=[4, 1], start="latest")

        assert again == first
        with pytest.raises(QueueExistsError, match="its priority_weights is 4,1, not none"):
            await client.admin.create_queue("orders")


async def test_a_queue_is_created_on_a_recreated_topic(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        await client.admin.create_topic("orders", 3)
        await client.admin.list_offsets("orders", "latest")
        await client.admin.delete_topic("orders")
        await client.admin.create_topic("orders", 2)

        await client.admin.create_queue("q", topic="orders")

        (queue,) = await client.admin.describe_queues(["q"])
    assert len(queue.partitions) == 2


async def test_invalid_queue_requests_are_refused_with_a_reason(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        admin = client.admin
        await admin.create_queue("dead")
        await admin.create_queue("q", dead_letter_queue="dead", max_receive_count=3)

        with pytest.raises(UnknownTopicError, match="no topic 'ordres'"):
            await admin.create_queue("billing", topic="ordres")
        with pytest.raises(UnknownQueueError, match="no queue 'nope'"):
            await admin.describe_queues(["nope"])
        with pytest.raises(InvalidConfigError, match="would come back"):
            await admin.alter_queue("dead", set={"dead_letter_queue": "q"})
        with pytest.raises(InvalidRequestError, match="is the dead-letter queue of q"):
            await admin.delete_queue("dead")
        (dead,) = await admin.describe_queues(["dead"])
        assert dead.dead_letters_of == ["q"]
        await admin.delete_queue("dead", detach_sources=True, with_topic=True)
        (queue,) = await admin.describe_queues(["q"])
        assert queue.config["dead_letter_queue"] == "none"
        assert await admin.list_topics() == ["q"]


async def test_clients_cannot_read_or_write_a_queue_journal(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        await client.admin.create_queue("q")
        journal = "queue@q"

        with pytest.raises(InvalidTopicError, match="the journal of queue 'q', which only brokers"):
            await client.admin.list_offsets(journal, "earliest")
        with pytest.raises(InvalidTopicError, match="which only brokers read and write"):
            await client.admin.delete_records(journal, 0, None)
        for ask in (client.admin.delete_topic, client.admin.create_topic):
            with pytest.raises(InvalidTopicError):
                await ask(journal)
        with pytest.raises(InvalidTopicError, match="see `tidelog queue describe q`"):
            await client.admin.describe_topics([journal])
        async with client.producer() as producer:
            with pytest.raises(InvalidTopicError, match="which only brokers read and write"):
                await producer.send(journal, b"forged")
        with pytest.raises(InvalidTopicError, match="which only brokers read and write"):
            async with client.consumer(journal, auto_offset_reset="earliest"):
                pass


async def test_a_queue_survives_a_restart(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_queue("q", fifo=True, partitions=2, retry_backoff=[1, 2.5])
        (before,) = await client.admin.describe_queues()
    async with client_of(world) as client:
        (after,) = await client.admin.describe_queues()

    assert after.config == before.config
    assert (after.queue_id, after.is_fifo) == (before.queue_id, True)
    assert after.config["deduplication_scope"] == "group"
    assert after.config["retry_backoff"] == "1000ms,2500ms"


@pytest.mark.parametrize(
    ("given", "travels_as"),
    [
        ({"visibility_timeout": 30}, {"visibility_timeout_ms": "30000ms"}),
        ({"delivery_delay": 0.25}, {"delivery_delay_ms": "250ms"}),
        ({"visibility_timeout": "30"}, {"visibility_timeout_ms": "30000ms"}),
        ({"delivery_delay": " 0.25 "}, {"delivery_delay_ms": "250ms"}),
        ({"receive_message_wait_time": "-1"}, {"receive_message_wait_time_ms": "-1000ms"}),
        ({"receive_message_wait_time_ms": "30"}, {"receive_message_wait_time_ms": "30"}),
        ({"retention": "14d"}, {"retention_ms": "14d"}),
        ({"retention_ms": 60_000}, {"retention_ms": "60000"}),
        (
            {"require_latest_receipt": True, "fair_delivery": False},
            {"require_latest_receipt": "on", "fair_delivery": "off"},
        ),
        ({"max_receive_count": 5, "send_rate": None}, {"max_receive_count": "5"}),
        ({"retry_backoff": "none"}, {"retry_backoff": "none"}),
    ],
)
def test_durations_are_seconds_in_programs(
    given: dict[str, Setting], travels_as: dict[str, str]
) -> None:
    assert settings_as_text(given) == travels_as


def test_a_duration_given_twice_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="retention_ms is given twice"):
        settings_as_text({"retention": 60, "retention_ms": "1min"})

    assert name_of_setting("receive_message_wait_time") == "receive_message_wait_time_ms"
    assert name_of_setting("priority_weights") == "priority_weights"


STARTED_MS = 1_700_000_000_000
RUNNING = RedriveDescription(
    0,
    RedriveStatus.RUNNING,
    STARTED_MS,
    None,
    to_move=100,
    moved=40,
    on_the_way=5,
    left=50,
    skipped=3,
    failed=2,
    messages_per_s=20,
    origin_queue="orders",
)
DONE = replace(
    RUNNING, status=RedriveStatus.COMPLETED, ended_ms=STARTED_MS + 4000, on_the_way=0, left=0
)


def test_a_redrive_runs_while_one_partition_runs() -> None:
    report = report_of([DONE, RUNNING, RedriveDescription(2)], STARTED_MS + 8000)

    assert report.status is RedriveStatus.RUNNING
    assert not report.is_over
    assert (report.started_ms, report.ended_ms) == (STARTED_MS, None)
    assert (report.to_move, report.moved, report.left) == (200, 80, 50)
    assert (report.on_the_way, report.skipped, report.failed) == (5, 6, 4)
    assert report.messages_per_s == 10
    assert (report.rate, report.only_from, report.to_topic_id) == (20, "orders", None)


def test_a_redrive_is_not_over_while_messages_move() -> None:
    cancelled = replace(RUNNING, status=RedriveStatus.CANCELLED, ended_ms=STARTED_MS + 2000)

    report = report_of([DONE, cancelled], STARTED_MS + 8000)
    assert report.status is RedriveStatus.CANCELLED
    assert not report.is_over

    report = report_of([DONE, replace(cancelled, on_the_way=0)], STARTED_MS + 8000)
    assert report.is_over
    assert report.ended_ms == STARTED_MS + 4000
    assert report.messages_per_s == 20


def test_redrives_of_partitions_are_one_by_their_id_and_the_latest_is_first() -> None:
    old = [replace(DONE, partition=each, number=1, started_ms=STARTED_MS) for each in (0, 1)]
    new = [
        replace(DONE, partition=each, number=7 + each, started_ms=STARTED_MS + 9, redrive_id=b"x")
        for each in (0, 1)
    ]

    reports = reports_of([*new, RedriveDescription(2), *old], STARTED_MS + 8000)

    assert [(each.redrive_id, each.moved) for each in reports] == [(b"x", 80), (b"", 80)]


def test_a_queue_without_a_redrive_has_no_status() -> None:
    report = report_of([RedriveDescription(0), RedriveDescription(1)], STARTED_MS)

    assert report.status is None
    assert report.is_over


def test_counts_of_partitions_are_added_and_the_oldest_message_is_the_oldest_of_all() -> None:
    counts = [
        QueueCounts(0, 1, 2, 3, 4, 100, 5000, oldest_age_ms=2000),
        QueueCounts(1, 10, 20, 30, 40, 100, 4000, oldest_age_ms=3000),
        QueueCounts(2, 0, 0, 0, 0, 7),
    ]

    assert sum_of(counts) == MessageCounts(11, 22, 33, 44, 4000, 3000)
    assert sum_of(counts[2:]) == MessageCounts(0, 0, 0, 0, None)


async def test_queues_are_described_with_their_messages(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        admin = client.admin
        for number in range(20):
            await admin.create_queue(f"q{number:02}", partitions=2)
        queue = client.queue("q07")
        await queue.send_batch([b"a", b"b", b"c"])
        await queue.receive(1, wait=5)

        (without,) = await admin.describe_queues(["q07"])
        queues = await admin.describe_queues(with_counts=True)

        assert without.counts is None
        counts = {each.name: each.counts for each in queues}
        assert len(counts) == 20
        found = counts.pop("q07")
        assert found is not None
        assert (found.visible, found.in_flight, found.delayed, found.dead) == (2, 1, 0, 0)
        assert found.oldest_timestamp_ms is not None
        assert found.oldest_timestamp_ms >= START_MS
        assert set(counts.values()) == {MessageCounts(0, 0, 0, 0, None)}


async def test_counts_of_a_queue_without_a_leader_are_unknown(
    autojump_clock: MockClock,
) -> None:
    async with client_of(World(autojump_clock)) as client:
        await client.admin.create_queue("orders")
        (queue,) = await client.admin.describe_queues(["orders"])
        (partition,) = queue.partitions
        nowhere = replace(queue, partitions=[replace(partition, leader_id=None)])
        elsewhere = replace(queue, partitions=[replace(partition, leader_id=9)])
        gone = replace(queue, queue_id=bytes(16))

        found = await count_messages(client.admin._cluster, [nowhere, elsewhere, gone, queue])  # pyright: ignore[reportPrivateUsage]

        assert found == [None, None, None, MessageCounts(0, 0, 0, 0, None)]
