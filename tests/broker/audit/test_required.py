"""Tests of `audit = required`: no administration without its record, and a way out."""

import pytest
import trio
from trio.testing import MockClock

from tests.broker.audit.audit_records import audit_records
from tests.broker.broker_requests import (
    alter_topic,
    batch_of,
    create_topic,
    fetch_all,
    produce,
)
from tests.broker.world import World
from tidelog.broker.audit.event import AuditKind
from tidelog.wire.errors import AuditUnavailableError
from tidelog.wire.messages.names import ListNamesRequest
from tidelog.wire.messages.quotas import AlterQuotasRequest
from tidelog.wire.protocol import api
from tidelog.wire.security.audit_topic import AUDIT_TOPIC
from tidelog.wire.transport.rpc import RpcConnection

SMALL = {
    "segment_bytes": "16KiB",
    "max_message_bytes": "8KiB",
    "max_partition_bytes": "32KiB",
}
"""Settings of an audit topic that is soon full."""


async def topics(client: RpcConnection) -> list[str]:
    return (await client.ask(api.LIST_TOPICS, ListNamesRequest("", "", 100))).names


async def test_the_intent_is_committed_before_a_command_takes_effect(
    mock_clock: MockClock,
) -> None:
    mock_clock.autojump_threshold = 0
    world = World(mock_clock)
    async with world.doomed_broker(audit="required"), world.client() as client:
        await create_topic(client, "orders")
    # The broker ended before the record of the outcome could be written.
    async with world.broker(), world.client() as client:
        assert "orders" in await topics(client)
        records = await audit_records(client, AuditKind.ADMINISTRATION)

    assert [(each.stage, each.action, each.resource) for each in records] == [
        ("intent", "topic.create", "topic:orders")
    ]


async def test_intent_and_outcome_belong_together(mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0
    world = World(mock_clock)
    async with world.broker(audit="required"), world.client() as client:
        await create_topic(client, "orders")
        await trio.sleep(1)
        intent, outcome = await audit_records(client, AuditKind.ADMINISTRATION)

    assert (intent.stage, intent.result, intent.intent) == ("intent", "", "")
    assert (outcome.stage, outcome.result, outcome.intent) == ("outcome", "ok", intent.id)
    assert intent.request_id == outcome.request_id


async def test_administration_is_refused_while_its_record_cannot_be_written(
    mock_clock: MockClock,
) -> None:
    mock_clock.autojump_threshold = 0
    world = World(mock_clock)
    async with world.broker(audit="required"), world.client() as client:
        await create_topic(client, "orders")
        await trio.sleep(1)
        world.work.hold_syncs()

        with pytest.raises(AuditUnavailableError) as refusal:
            await create_topic(client, "payments")

        assert "payments" not in await topics(client)
        world.work.let_all_sync()
        await trio.sleep(20)
        await create_topic(client, "payments")
        await trio.sleep(1)
        records = await audit_records(client, AuditKind.ADMINISTRATION)

    assert "\n" not in str(refusal.value)
    assert "topic.create was not carried out" in str(refusal.value)
    of_payments = [each for each in records if each.resource == "topic:payments"]
    # The write of the refused intent was under way, so it is in the topic as well.
    assert [(each.stage, each.result) for each in of_payments] == [
        ("intent", ""),
        ("outcome", "AUDIT_UNAVAILABLE"),
        ("intent", ""),
        ("outcome", "ok"),
    ]


async def test_traffic_goes_on_while_administration_is_refused(mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0
    world = World(mock_clock)
    async with world.broker(audit="required"), world.client() as client:
        topic = await create_topic(client, "orders")
        await trio.sleep(1)
        await alter_topic(client, AUDIT_TOPIC, **SMALL)
        await fill_audit(client)

        with pytest.raises(AuditUnavailableError, match="max_partition_bytes"):
            await create_topic(client, "payments")
        await produce(client, topic, batch_of(b"one"))
        assert [each.value for each in await fetch_all(client, topic)] == [b"one"]


async def fill_audit(client: RpcConnection) -> None:
    """Alter a topic until the audit topic is full."""
    for number in range(100_000):
        try:
            await alter_topic(client, "orders", retention_ms=f"{number + 1}h")
        except AuditUnavailableError:
            return
    raise AssertionError("the audit topic is never full")


async def test_a_full_audit_topic_can_be_altered_and_then_administration_goes_on(
    mock_clock: MockClock,
) -> None:
    mock_clock.autojump_threshold = 0
    world = World(mock_clock)
    async with world.broker(audit="required"), world.client() as client:
        await create_topic(client, "orders")
        await alter_topic(client, AUDIT_TOPIC, **SMALL)
        await fill_audit(client)

        await alter_topic(client, AUDIT_TOPIC, max_partition_bytes="1GiB")
        await trio.sleep(10)
        await create_topic(client, "payments")
        await trio.sleep(1)
        records = await audit_records(client, AuditKind.ADMINISTRATION)

    (bypass,) = world.told("audit_bypassed")
    assert (bypass["action"], bypass["resource"]) == ("topic.alter", f"topic:{AUDIT_TOPIC}")
    # The record of the repair comes late, and is not lost.
    assert [
        (each.stage, each.result) for each in records if "1GiB" in each.detail.get("set_config", "")
    ] == [("intent", ""), ("outcome", "ok")]
    assert not world.told("audit_lost")


async def test_no_quota_stops_the_audit(mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0
    world = World(mock_clock)
    async with world.broker(audit="required"), world.client() as client:
        await create_topic(client, "orders")
        low = AlterQuotasRequest("default", {"storage_bytes_max": 1, "partitions_max": 1})
        await client.ask(api.ALTER_QUOTAS, low)
        await trio.sleep(10)

        await client.ask(api.ALTER_QUOTAS, AlterQuotasRequest("default", {}, ["*"]))

        records = await audit_records(client, AuditKind.ADMINISTRATION)
        assert [each.action for each in records].count("quota.alter") >= 3
