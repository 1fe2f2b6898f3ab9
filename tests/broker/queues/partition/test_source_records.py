"""Tests of source records: groups, priorities, delays, and reads."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, create_topic, produce
from tests.broker.queues.queue_requests import (
    create_queue,
    peek,
    receive,
    received,
    settle,
    states,
    submit_receive,
    topic_of,
)
from tests.broker.world import START_MS, World
from tests.broker.world import settle as let_happen
from tidelog.broker.partitions.log_reader import SliceReader
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.queues.partition.source_records import SourceRecords
from tidelog.broker.server import Broker
from tidelog.logstore.log import PartitionLog
from tidelog.logstore.segments.log_slice import LogSlice
from tidelog.wire.batch.record_batch import Columns, Headers, encode_batch, parse_header
from tidelog.wire.errors import CorruptRecordError, LeaderNotAvailableError
from tidelog.wire.messages.queues import (
    DELIVER_AT_HEADER,
    PRIORITY_HEADER,
    MessageState,
    SettleAction,
)


def keyed(*records: tuple[bytes, bytes]) -> bytearray:
    """Return a batch of keys and values."""
    keys, values = [key for key, _ in records], [value for _, value in records]
    return encode_batch(
        Columns(len(records), keys=keys, values=values), first_timestamp_ms=START_MS
    )


def with_headers(*records: tuple[bytes, Headers]) -> bytearray:
    """Return a batch of values and headers."""
    values, headers = [value for value, _ in records], [headers for _, headers in records]
    columns = Columns(len(records), values=values, headers=headers)
    return encode_batch(columns, first_timestamp_ms=START_MS)


@pytest.mark.statement("b18")
async def test_a_message_group_continues_when_its_received_messages_are_settled(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        topic = topic_of(broker)
        await produce(client, topic, keyed((b"a", b"a1"), (b"b", b"b1"), (b"a", b"a2")))
        first = await receive(client, queue, 1)
        second = await receive(client, queue)
        assert [each.value for each in (*first, *second)] == [b"a1", b"b1"]
        blocked = (await peek(client, queue, MessageState.BLOCKED)).runs
        assert [(run.first_offset, run.count) for run in blocked] == [(2, 1)]
        pending = submit_receive(client, queue, max_wait_ms=60_000)
        await let_happen()
        assert not pending.is_answered

        await settle(client, queue, first)

        assert [each.value for each in await received(pending)] == [b"a2"]


async def test_records_of_a_replica_that_was_closed_are_not_read(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a"))
        await receive(client, queue)
        partitions = broker._partitions
        assert partitions is not None
        records = SourceRecords(partitions, SliceReader(broker._env), topic_of(broker), number=0)
        assert records.partition() is partitions.replica(topic_of(broker), 0)

        partitions.close((topic_of(broker), 0), LeaderNotAvailableError("closed"))

        with pytest.raises(LeaderNotAvailableError):
            records.partition()


async def test_message_groups_are_in_order_after_a_restart(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        topic = topic_of(broker)
        await produce(client, topic, keyed((b"a", b"a1"), (b"a", b"a2"), (b"b", b"b1")))
        first = await receive(client, queue, 1)

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        assert [each.value for each in await receive(client, queue)] == [b"b1"]
        await settle(client, queue, first, action=SettleAction.RELEASE)
        assert [each.value for each in await receive(client, queue)] == [b"a1", b"a2"]


@pytest.mark.statement("b18")
async def test_a_delayed_message_is_delivered_at_its_time(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        at_ms = world.clock.now_ms() + 5000
        late: Headers = ((DELIVER_AT_HEADER, b"%d" % at_ms),)
        batch = with_headers((b"later", late), (b"now", ()))
        await produce(client, topic_of(broker), batch)
        assert [each.value for each in await receive(client, queue)] == [b"now"]
        assert await states(client, queue) == (0, 1, 1, 0)
        pending = submit_receive(client, queue, max_wait_ms=60_000)
        await let_happen()

        await world.pass_time(4.9)
        assert not pending.is_answered
        await world.pass_time(0.2)

        assert [each.value for each in await received(pending)] == [b"later"]


async def test_a_queue_with_a_delivery_delay_delivers_nothing_earlier(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, delivery_delay_ms="10s")
        await produce(client, topic_of(broker), with_headers((b"a", ()), (b"b", ())))
        assert await receive(client, queue) == []

        await world.pass_time(10.1)

        assert [each.value for each in await receive(client, queue)] == [b"a", b"b"]


async def test_messages_with_a_higher_priority_are_delivered_first(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, priority_weights="4,2,1")
        urgent: Headers = ((PRIORITY_HEADER, b"0"),)
        low: Headers = ((PRIORITY_HEADER, b"2"),)
        batch = with_headers((b"low", low), (b"urgent", urgent))
        await produce(client, topic_of(broker), batch)

        assert [each.value for each in await receive(client, queue, 1)] == [b"urgent"]


async def test_a_malformed_number_in_a_header_is_ignored(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        odd: Headers = ((DELIVER_AT_HEADER, b"tomorrow"), (PRIORITY_HEADER, b""))
        await produce(client, topic_of(broker), with_headers((b"a", odd)))

        assert [each.value for each in await receive(client, queue)] == [b"a"]


def test_a_batch_header_tells_whether_it_has_queue_fields() -> None:
    plain: Headers = (("trace", b"1"),)
    late: Headers = ((DELIVER_AT_HEADER, b"1"),)

    for headers, has_fields in (((), False), (plain, False), ((*plain, *late), True)):
        header = parse_header(with_headers((b"a", headers)))
        assert header is not None
        assert header.has_queue_fields is has_fields


async def test_messages_are_leased_after_they_were_read(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        for value in (b"a", b"b", b"c"):
            await produce(client, topic_of(broker), batch_of(value))

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        assert await receive(client, queue, 1, visibility_timeout_ms=0)  # The partition is loaded.
        world.work.hold_reads()
        first = submit_receive(client, queue, 2)
        second = submit_receive(client, queue, 2)
        await let_happen()
        assert not first.is_answered

        world.work.let_all_read()

        assert len(await received(first)) + len(await received(second)) == 3


async def test_a_receive_of_a_lost_client_leases_nothing(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a"))

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        assert await states(client, queue) == (1, 0, 0, 0)
        world.work.hold_reads()
        async with world.client() as hasty:
            submit_receive(hasty, queue)
            await let_happen()
        await let_happen()

        world.work.let_all_read()
        await let_happen()

        assert await states(client, queue) == (1, 0, 0, 0)


@pytest.mark.parametrize("is_fifo", [False, True])
async def test_a_standard_queue_skips_damaged_batches_and_a_fifo_queue_does_not(
    mock_clock: MockClock,
    *,
    is_fifo: bool,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=is_fifo)
        for value in (b"first", b"second", b"third"):
            columns = Columns(1, keys=[b"k"], values=[value])
            batch = encode_batch(columns, first_timestamp_ms=START_MS)
            await produce(client, topic_of(broker), batch)
    (path,) = (path for path, data in world.segments() if b"second" in data)
    world.disk.damage(path, world.disk.visible_bytes(path).index(b"second"), b"damage")

    world = world.after_crash()
    async with world.broker(), world.client() as client:
        received_values = [each.value for each in await receive(client, queue)]

        assert received_values == ([b"first"] if is_fifo else [b"first", b"third"])
        if not is_fifo:
            with pytest.raises(CorruptRecordError):
                await receive(client, queue)


async def test_a_lease_that_ends_during_a_read_keeps_no_task_busy(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a"))
        await receive(client, queue, visibility_timeout_ms=10_000)
        waits = submit_receive(client, queue, max_wait_ms=60_000)
        await let_happen()
        ((path, _),) = [found for found in world.segments() if "queue@" not in found[0]]
        world.disk.cold_paths.add(path)
        world.work.hold_reads()
        await produce(client, topic_of(broker), batch_of(b"b"))

        await world.pass_time(11)  # The time would not advance if tasks were always busy.

        assert not waits.is_answered
        world.work.let_all_read()
        assert [each.value for each in await received(waits)] == [b"a", b"b"]


async def test_a_fresh_message_is_found_behind_the_last_known_one(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        topic = topic_of(broker)
        searches: list[int] = []
        read = PartitionLog.read

        def searched(self: PartitionLog, offset: int, **how: int) -> LogSlice | None:
            searches.append(offset)
            return read(self, offset, **how)

        await produce(client, topic, batch_of(b"a"))
        assert await receive(client, queue)
        monkeypatch.setattr(PartitionLog, "read", searched)
        for value in (b"b", b"c"):
            await produce(client, topic, batch_of(value))
            await produce(client, topic, batch_of(value, value))
            again = await receive(client, queue)
            assert [each.value for each in again] == [value] * 3

        assert searches == []


async def test_fresh_messages_are_found_in_the_next_segment(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client, segment_bytes="4KiB")
        queue = await create_queue(broker)
        topic = topic_of(broker)
        log = source_of(broker, topic).log
        values = [b"%d" % number + b"." * 700 for number in range(40)]
        found: list[bytes | None] = []
        for value in values:
            await produce(client, topic, batch_of(value))
            found += [each.value for each in await receive(client, queue)]

        assert log.segment_count > 5
        assert found == values


def source_of(broker: Broker, topic_id: bytes) -> Partition:
    """Return the partition 0 of a topic."""
    assert broker._partitions is not None
    found = broker._partitions.replica(topic_id, 0)
    assert found is not None
    return found
