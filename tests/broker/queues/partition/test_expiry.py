"""Tests of the expiry of old messages, and of messages whose records the log has deleted."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, delete_records, produce
from tests.broker.queues.queue_requests import (
    count,
    create_queue,
    peek,
    receive,
    settle,
    states,
    topic_of,
)
from tests.broker.world import START_MS, World
from tests.queue_layer.driver import TARGET, Driver
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.queues.partition import expiry
from tidelog.broker.queues.partition.hosted_partition import HostedPartition
from tidelog.broker.server import Broker
from tidelog.queue_layer.commands import remove
from tidelog.wire.batch.batch_columns import decode_columns
from tidelog.wire.batch.record_batch import parse_header
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.messages.queue_journal import Expired, decode
from tidelog.wire.messages.queues import Run, SettleAction


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


def journal_of(broker: Broker, queue: bytes) -> Partition:
    assert broker._partitions is not None
    found = broker._partitions.replica(queue, 0)
    assert found is not None
    return found


def expired_at(broker: Broker, queue: bytes) -> list[tuple[int, list[Run]]]:
    """Return when messages expired, by the journal; seconds after the start."""
    log = journal_of(broker, queue).log
    part = log.read(0, max_bytes=1 << 20, high_watermark=log.log_end_offset)
    assert part is not None
    data = part.file.read_at(part.position, part.length)
    found: list[tuple[int, list[Run]]] = []
    while (header := parse_header(data)) is not None:
        columns = decode_columns(header, data[: header.size], uncompressed_length_max=1 << 20)
        for value in columns.values or []:
            frame = decode(value or b"")
            second = (frame.now_ms - START_MS) // 1000
            found += [(second, each.runs) for each in frame.entries if isinstance(each, Expired)]
        data = data[header.size :]
    return found


async def unload(world: World) -> None:
    """Let an unused queue be unloaded."""
    for _ in range(11):
        await world.pass_time(60)


@pytest.mark.statement("b13", "b93")
@pytest.mark.parametrize("is_loaded", [True, False])
async def test_expired_messages_go_by_time_without_a_request(
    mock_clock: MockClock, *, is_loaded: bool
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, retention_ms="1h")
        await produce(client, topic_of(broker), batch_of(b"a", b"b", at_ms=START_MS))
        await produce(client, topic_of(broker), batch_of(b"c", at_ms=START_MS + 60_000))
        await receive(client, queue, 1, visibility_timeout_ms=5_000_000)
        if not is_loaded:
            await settle(client, queue, await receive(client, queue, 1))
            await unload(world)
        await world.pass_time(START_MS / 1000 + 3_600 - world.clock.now_ms() / 1000 - 1)
        assert expired_at(broker, queue) == []

        await world.pass_time(2)

        expired = [(0, 2)] if is_loaded else [(0, 1)]
        assert expired_at(broker, queue) == [(3_601, expired)]
        await world.pass_time(60)
        assert expired_at(broker, queue)[1:] == [(3_661, [(2, 1)])]
        assert await states(client, queue) == (0, 0, 0, 0)


@pytest.mark.statement("b13", "b93")
async def test_counts_ages_and_peeks_have_no_expired_messages(mock_clock: MockClock) -> None:
    """At the time of the answer, and regardless of receives."""
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, retention_ms="1min")
        topic = topic_of(broker)
        for second in range(5):
            await produce(client, topic, batch_of(b"m", at_ms=START_MS + second * 10_000))
        found: list[tuple[int, int | None, int]] = []

        await world.pass_time(START_MS / 1000 + 60 - world.clock.now_ms() / 1000 + 1)
        for _ in range(5):
            counts = await count(client, queue)
            runs = (await peek(client, queue)).runs
            found.append((counts.visible, counts.oldest_age_ms, sum(run.count for run in runs)))
            await world.pass_time(10)

        assert [(visible, seen) for visible, _, seen in found] == [
            (4, 4), (3, 3), (2, 2), (1, 1), (0, 0)
        ]  # fmt: skip
        assert all(age is None or age < 61_000 for _, age, _ in found)
        assert found[-1][1] is None


@pytest.mark.statement("b14", "b93")
async def test_a_delayed_message_expires_by_time_from_its_delivery_on(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, retention_ms="1min", delivery_delay_ms="90s")
        topic = topic_of(broker)
        await produce(client, topic, batch_of(b"a", at_ms=START_MS))

        for _ in range(149):
            await world.pass_time(1)
        assert expired_at(broker, queue) == []
        for _ in range(3):
            await world.pass_time(1)

        assert [runs for _, runs in expired_at(broker, queue)] == [[(0, 1)]]
        assert 150 <= expired_at(broker, queue)[0][0] <= 151


async def test_messages_that_expire_one_by_one_are_removed_at_most_once_a_second(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, retention_ms="1min")
        topic = topic_of(broker)
        for number in range(100):
            await produce(client, topic, batch_of(b"m", at_ms=START_MS + number * 100))
        await world.pass_time(59)

        for _ in range(120):
            await world.pass_time(0.1)

        assert await states(client, queue) == (0, 0, 0, 0)
        assert 9 <= len(expired_at(broker, queue)) <= 12


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


async def test_a_trim_ends_when_the_log_begins_earlier_again(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica of the records that is replaced begins at 0 before it has a copy."""
    monkeypatch.setattr(remove, "PIECES_AT_ONCE", 2)
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, visibility_timeout_ms="1s")
        for number in range(10):
            await produce(client, topic_of(broker), batch_of(b"%d" % number))
            await receive(client, queue, 1)
        await delete_records(client, topic_of(broker), 9)
        (hosted,) = (
            each for each in journal_of(broker, queue).watchers if isinstance(each, HostedPartition)
        )
        hosted.require()
        log = hosted.records.partition().log
        monkeypatch.setattr(log, "log_start_offset", 0)

        hosted.require()

        assert hosted._expiry.trimmed_to is None


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


async def test_a_check_that_is_cancelled_is_made_again_at_once(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request or the watch may stop waiting; the next receive checks, and not after a minute."""
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, retention_ms="1h")
        assert await receive(client, queue) == []
        for value, at_ms in ((b"old", START_MS - 7_200_000), (b"new", START_MS)):
            await produce(client, topic_of(broker), batch_of(value, at_ms=at_ms))
        (hosted,) = (
            each for each in journal_of(broker, queue).watchers if isinstance(each, HostedPartition)
        )
        hosted._expiry.due_ms = 0

        with trio.CancelScope() as scope, monkeypatch.context() as patch:

            def slices(*args: object) -> Iterator[tuple[int, int]]:
                del args
                scope.cancel()
                yield 0, 0

            patch.setattr(expiry.Expiry, "slices", slices)
            await hosted.expire_due()

        assert scope.cancelled_caught
        assert [each.value for each in await receive(client, queue)] == [b"new"]
