"""Tests of the audit of a whole broker: what its topic says, and what it refuses."""

import pytest
import trio
from trio.testing import MockClock

from tests.broker.audit.audit_records import audit_records, audit_topic_id
from tests.broker.broker_requests import (
    alter_topic,
    batch_of,
    create_topic,
    delete_records,
    delete_topic,
    fetch,
    produce,
)
from tests.broker.world import World
from tidelog.broker.audit.event import AuditKind
from tidelog.wire.errors import InvalidTopicError, TopicExistsError
from tidelog.wire.messages.queue_admin import CreateQueueRequest, CreateQueuesRequest
from tidelog.wire.messages.topics import CreateTopicRequest
from tidelog.wire.protocol import api
from tidelog.wire.security.audit_topic import AUDIT_TOPIC


async def pass_minute() -> None:
    """Let a minute end, and its records be written."""
    await trio.sleep(62)


async def test_administration_is_recorded_with_its_outcome(mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0
    world = World(mock_clock)
    async with world.broker(audit="on"), world.client() as client:
        await create_topic(client, "orders")
        with pytest.raises(TopicExistsError):
            await create_topic(client, "orders")
        await alter_topic(client, "orders", retention_ms="1h")
        await delete_topic(client, "orders")
        await trio.sleep(1)
        records = await audit_records(client, AuditKind.ADMINISTRATION)

    assert [(each.action, each.resource, each.result) for each in records] == [
        ("topic.create", "topic:orders", "ok"),
        ("topic.create", "topic:orders", "TOPIC_EXISTS"),
        ("topic.alter", "topic:orders", "ok"),
        ("topic.delete", "topic:orders", "ok"),
    ]
    assert {each.principal for each in records} == {"anonymous"}
    assert {each.client_id for each in records} == {"test"}
    assert all(each.address for each in records)
    assert records[2].detail == {"set_config": '{"retention_ms":"1h"}'}


@pytest.mark.parametrize("mode", ["on", "required"])
async def test_each_of_many_created_queues_has_a_record(mode: str, mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0
    world = World(mock_clock)
    async with world.broker(audit=mode), world.client() as client:
        wanted = [
            CreateQueueRequest(name, name, None, [], is_fifo=False, config={}, topic_config={})
            for name in ("a", "not legal", "b")
        ]
        await client.ask(api.CREATE_QUEUES, CreateQueuesRequest(wanted))
        await trio.sleep(1)
        records = await audit_records(client, AuditKind.ADMINISTRATION)

    outcomes = [each for each in records if each.stage != "intent"]
    assert [(each.action, each.resource, each.result) for each in outcomes] == [
        ("queue.create", "queue:a", "ok"),
        ("queue.create", "queue:not legal", "INVALID_REQUEST"),
        ("queue.create", "queue:b", "ok"),
    ]
    assert outcomes[0].detail["topic"] == "a"
    assert "not legal" in outcomes[1].detail["reason"]
    intents = [each.resource for each in records if each.stage == "intent"]
    assert sorted(intents) == (
        ["queue:a", "queue:b", "queue:not legal"] if mode == "required" else []
    )


async def test_usage_is_recorded_by_principal_topic_and_minute(mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0
    world = World(mock_clock)
    async with world.broker(audit="on"), world.client() as client:
        topic = await create_topic(client, "orders")
        batch = batch_of(b"one", b"two")
        await produce(client, topic, batch)
        await produce(client, topic, batch)
        await fetch(client, topic, 0)
        await pass_minute()
        first = await audit_records(client, AuditKind.USAGE)
        await pass_minute()
        second = await audit_records(client, AuditKind.USAGE)

    (orders,) = (each for each in first if each.resource == "topic:orders")
    assert (orders.principal, orders.requests) == ("anonymous", 3)
    assert (orders.records_in, orders.bytes_in) == (4, 2 * len(batch))
    assert orders.bytes_out == 2 * len(batch)
    assert orders.until_ms - orders.time_ms <= 60_000
    # The reads of the audit topic are usage as well; its writes are not.
    (of_audit,) = (each for each in second if each.resource == f"topic:{AUDIT_TOPIC}")
    assert of_audit.bytes_in == 0
    assert of_audit.bytes_out > 0


async def test_writing_audit_records_is_not_audited(mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0
    world = World(mock_clock)
    async with world.broker(audit="on"), world.client() as client:
        for _ in range(10):
            await pass_minute()
        records = await audit_records(client)

    assert [(each.kind, each.action) for each in records] == [(AuditKind.SERVICE, "audit.start")]


async def test_clients_read_the_audit_topic_and_never_change_its_records(
    mock_clock: MockClock,
) -> None:
    mock_clock.autojump_threshold = 0
    world = World(mock_clock)
    async with world.broker(audit="on"), world.client() as client:
        await trio.sleep(1)
        topic = await audit_topic_id(client)
        with pytest.raises(InvalidTopicError, match="only brokers write the audit topic"):
            await produce(client, topic, batch_of(b"forged"))
        with pytest.raises(InvalidTopicError, match="keeps its records"):
            await delete_records(client, topic, 1)
        with pytest.raises(InvalidTopicError, match="cannot be deleted"):
            await delete_topic(client, AUDIT_TOPIC)
        with pytest.raises(InvalidTopicError, match="cannot be compacted"):
            await alter_topic(client, AUDIT_TOPIC, cleanup_policy="compact")
        await alter_topic(client, AUDIT_TOPIC, retention_ms="30d")
        await trio.sleep(1)
        records = await audit_records(client, AuditKind.ADMINISTRATION)

    assert [(each.action, each.result) for each in records] == [
        ("topic.delete-records", "INVALID_TOPIC"),
        ("topic.delete", "INVALID_TOPIC"),
        ("topic.alter", "INVALID_TOPIC"),
        ("topic.alter", "ok"),
    ]


async def test_clients_cannot_create_the_audit_topic(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        with pytest.raises(InvalidTopicError, match="cannot be the name of a topic"):
            await client.ask(api.CREATE_TOPIC, CreateTopicRequest(AUDIT_TOPIC, 1, {}))


async def test_a_stop_writes_all_that_was_noted(mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0
    world = World(mock_clock)
    async with world.broker(audit="on"), world.client() as client:
        topic = await create_topic(client, "orders")
        await produce(client, topic, batch_of(b"one"))
    async with world.broker(audit="on"), world.client() as client:
        await trio.sleep(1)
        records = await audit_records(client)

    assert [(each.kind, each.action) for each in records] == [
        (AuditKind.SERVICE, "audit.start"),
        (AuditKind.ADMINISTRATION, "topic.create"),
        (AuditKind.USAGE, "usage"),
        (AuditKind.SERVICE, "audit.start"),
    ]
    assert len({each.id for each in records}) == len(records)
    assert not world.told("audit_lost")
