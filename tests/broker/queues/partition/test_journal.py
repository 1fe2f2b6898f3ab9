"""Tests of queue journals: appends, snapshots and loads."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from dataclasses import replace

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, produce
from tests.broker.queues.queue_requests import (
    create_queue,
    receive,
    settle,
    states,
    submit_receive,
    submit_settle,
    topic_of,
)
from tests.broker.world import START_MS, World
from tests.broker.world import settle as let_happen
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.server import Broker
from tidelog.queue_layer import frames
from tidelog.queue_layer.commands import unreceived_entries
from tidelog.queue_layer.state import snapshots
from tidelog.wire.batch.record_batch import Columns, encode_batch
from tidelog.wire.errors import DiskFullError
from tidelog.wire.messages.queues import DELIVER_AT_HEADER


def journal(broker: Broker, queue_id: bytes) -> Partition:
    assert broker._partitions is not None
    found = broker._partitions.replica(queue_id, 0)
    assert found is not None
    return found


@pytest.mark.statement("b78")
async def test_no_reply_overtakes_the_sync_of_its_journal_entries(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, receive_acks="all")
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        first = await receive(client, queue, 1)
        world.work.hold_syncs()

        pending = submit_receive(client, queue)
        settled = submit_settle(client, queue, first)
        await let_happen()
        assert not pending.is_answered
        assert not settled.is_answered

        world.work.let_all_sync()
        await settled.reply()
        await pending.reply.reply()


async def test_a_receive_with_leader_acks_does_not_wait_for_the_disk(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, receive_acks="leader")
        await produce(client, topic_of(broker), batch_of(b"a"))
        await receive(client, queue, 1, visibility_timeout_ms=0)
        world.work.hold_syncs()

        assert [each.value for each in await receive(client, queue)] == [b"a"]

        world.work.let_all_sync()


async def test_decisions_of_one_tick_are_one_batch(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(*[b"%d" % n for n in range(20)]))
        messages = [(await receive(client, queue, 1))[0] for _ in range(20)]
        log = journal(broker, queue).log
        size_before, end_before = log.size_bytes, log.log_end_offset

        await settle(client, queue, messages)

        assert log.log_end_offset == end_before + 20
        assert log.size_bytes - size_before < 20 * 88


async def test_a_journal_begins_with_its_last_snapshot(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "BYTES_SINCE_MIN", 1000)
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, history_retention_ms="0")
        await produce(client, topic_of(broker), batch_of(*[b"%d" % n for n in range(200)]))
        for _ in range(60):
            first, *_ = await receive(client, queue, 2)
            await settle(client, queue, [first])
        before = await states(client, queue)
        log = journal(broker, queue).log
        assert log.log_start_offset > 0
        assert log.log_end_offset - log.log_start_offset < 100

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        assert await states(client, queue) == before == (80, 60, 0, 0)


async def test_a_failed_snapshot_is_reported_and_the_queue_continues(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "BYTES_SINCE_MIN", 1000)
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, history_retention_ms="0")
        await produce(client, topic_of(broker), batch_of(*[b"%d" % n for n in range(200)]))
        first, *_ = [(await receive(client, queue, 1))[0] for _ in range(40)]
        log = journal(broker, queue).log
        whole, start = log.config, log.log_start_offset
        log.config = replace(whole, max_message_bytes=500)
        while not world.told("queue_snapshot_failed"):
            await receive(client, queue, 1, visibility_timeout_ms=0)
            message, *_ = await receive(client, queue, 2)
            await settle(client, queue, [message])

        assert log.log_start_offset == start
        (event,) = world.told("queue_snapshot_failed")
        assert (event["queue"], event["partition"], event["severity"]) == ("orders", 0, "error")
        await settle(client, queue, [first])
        before = await states(client, queue)
        log.config = whole
        while log.log_start_offset == start:
            message, *_ = await receive(client, queue, 1, visibility_timeout_ms=0)
        assert await states(client, queue) == before

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        assert await states(client, queue) == before


async def test_the_entries_of_one_receive_may_exceed_one_journal_frame(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "FRAME_BYTES_MAX", 200)
    monkeypatch.setattr(unreceived_entries, "RUNS_PER_ENTRY", 10)
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        times = [b"%d" % (START_MS + 3_600_000 + n) for n in range(100)]
        headers = [((DELIVER_AT_HEADER, time),) for time in times]
        columns = Columns(101, values=[b"a"] * 101, headers=[*headers, ()])
        await produce(client, topic_of(broker), encode_batch(columns, first_timestamp_ms=START_MS))
        end_before = journal(broker, queue).log.log_end_offset

        (message,) = await receive(client, queue)

        assert message.offset == 100
        assert journal(broker, queue).log.log_end_offset > end_before + 5
        assert await states(client, queue) == (0, 1, 100, 0)

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        assert await states(client, queue) == (0, 1, 100, 0)
        await settle(client, queue, [message])
        assert await states(client, queue) == (0, 0, 100, 0)


@pytest.mark.statement("b82")
async def test_a_full_disk_leaves_the_queue_unchanged(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        messages = await receive(client, queue, 1)
        world.disk.capacity_bytes = 0

        with pytest.raises(DiskFullError):
            await receive(client, queue)
        with pytest.raises(DiskFullError):
            await settle(client, queue, messages)

        world.disk.capacity_bytes = None
        assert await states(client, queue) == (1, 1, 0, 0)
        assert [each.value for each in await receive(client, queue)] == [b"b"]
        await settle(client, queue, messages)
