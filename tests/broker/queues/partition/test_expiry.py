"""Tests of the expiry of old messages, and of messages whose records the log has deleted."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from types import SimpleNamespace
from typing import Any

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, delete_records, produce
from tests.broker.queues.queue_requests import create_queue, receive, settle, states, topic_of
from tests.broker.world import START_MS, World
from tests.queue_layer.driver import TARGET, Driver
from tidelog.broker.queues.partition import expiry
from tidelog.queue_layer.commands import remove
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.messages.queues import SettleAction


async def test_messages_whose_records_are_deleted_are_not_delivered(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        for value in (b"a", b"b", b"c"):
            await produce(client, topic_of(broker), batch_of(value))
        leased = await receive(client, queue, 1)

        await delete_records(client, topic_of(broker), 2)

        assert [each.value for each in await receive(client, queue)] == [b"c"]
        await settle(client, queue, leased)  # The message is gone in any case.
        assert await states(client, queue) == (0, 1, 0, 0)


async def test_expired_messages_are_removed_once_a_minute(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, retention_ms="1min")
        await produce(client, topic_of(broker), batch_of(b"old", at_ms=START_MS - 30_000))
        await produce(client, topic_of(broker), batch_of(b"new", at_ms=START_MS + 60_000))
        await receive(client, queue, 1, visibility_timeout_ms=1000)

        await world.pass_time(61)

        assert [each.value for each in await receive(client, queue)] == [b"new"]


@pytest.mark.parametrize(
    ("settings", "decisions"), [({"is_fifo": True}, 3), ({"fair_delivery": "true"}, 3), ({}, 1)]
)
async def test_expired_messages_are_removed_in_slices(
    mock_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    *,
    decisions: int,
) -> None:
    monkeypatch.setattr(remove, "MESSAGES_AT_ONCE", 10)
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, retention_ms="1min", **settings)
        old = [b"%d" % number for number in range(25)]
        await produce(client, topic_of(broker), batch_of(*old, at_ms=START_MS - 30_000))
        await produce(client, topic_of(broker), batch_of(b"new", at_ms=START_MS + 60_000))
        await receive(client, queue, 1, visibility_timeout_ms=1000)
        assert broker._partitions is not None
        journal = broker._partitions.replica(queue, 0)
        assert journal is not None
        end = journal.log.log_end_offset

        await world.pass_time(61)
        assert [each.value for each in await receive(client, queue)] == [b"new"]

        assert journal.log.log_end_offset == end + decisions + 1


async def test_messages_with_deleted_records_are_trimmed_in_slices_before_a_delivery(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remove, "PIECES_AT_ONCE", 2)
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, visibility_timeout_ms="1s")
        for number in range(10):
            await produce(client, topic_of(broker), batch_of(b"%d" % number))
            await receive(client, queue, 1)
        await world.pass_time(2)
        assert broker._partitions is not None
        journal = broker._partitions.replica(queue, 0)
        assert journal is not None
        end = journal.log.log_end_offset

        await delete_records(client, topic_of(broker), 9)
        assert [each.value for each in await receive(client, queue)] == [b"9"]

        assert journal.log.log_end_offset == end + 5 + 1
        assert await states(client, queue) == (0, 1, 0, 0)


async def test_messages_of_unknown_age_do_not_expire(
    mock_clock: MockClock,
) -> None:
    """Damage may be repaired, and the messages behind it wait for that."""
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, retention_ms="1min")
        topic = topic_of(broker)
        for value in (b"a-old", b"damaged", b"b-old"):
            await produce(client, topic, batch_of(value, at_ms=START_MS - 30_000))
        await produce(client, topic, batch_of(b"new", at_ms=START_MS + 60_000))

    world = world.after_crash()
    (path,) = (path for path, data in world.segments() if b"damaged" in data)
    world.disk.damage(path, world.disk.visible_bytes(path).index(b"damaged"), b"DAMAGED")
    async with world.broker(), world.client() as client:
        await world.pass_time(61)

        assert [each.value for each in await receive(client, queue, 10)] == [b"b-old", b"new"]
        assert (await states(client, queue))[:2] == (1, 2)


def test_dead_letters_that_return_after_the_log_deleted_them_are_removed() -> None:
    driver = Driver(QueueConfig(dead_letter_target=TARGET, max_receive_count=5), records=4)
    driver.settle(driver.take(2), SettleAction.REJECT)
    log = SimpleNamespace(log_start_offset=3)
    records: Any = SimpleNamespace(partition=lambda: SimpleNamespace(log=log))
    nothing: Any = None
    messages = expiry.Expiry(driver.queue, records, search=nothing)

    def trim() -> None:
        outcome = messages.trim(driver.now_ms)
        if outcome is not None:
            driver.do(outcome)

    trim()
    assert driver.counts() == {"visible": 1, "dead": 2}
    batch = driver.queue.state.moves.next_batch(TARGET)
    assert batch is not None
    driver.do(driver.queue.move_failed(batch, 1, "no such topic", now_ms=driver.now_ms))
    assert driver.counts() == {"visible": 2, "dead": 1}

    trim()

    assert driver.offsets() == [3]
