"""Tests of the dead-letter mover: a message is never in both queues, and never in neither."""

import errno
from itertools import pairwise

import pytest
from trio.testing import MockClock

# Reads private state of brokers.
# pyright: reportPrivateUsage=false
from tests.broker.broker_requests import (
    batch_of,
    create_topic,
    delete_records,
    delete_topic,
    fetch_all,
    produce,
    raise_if,
    submit,
)
from tests.broker.queues.dead_letters.dead_letter_fixture import (
    dead_letter_queue,
    headers_at,
    let_move,
    reject,
    values_of,
)
from tests.broker.queues.queue_requests import (
    create_queue,
    peek,
    receive,
    received,
    settle,
    states,
    submit_receive,
    submit_settle,
    topic_of,
)
from tests.broker.world import START_MS, World
from tests.broker.world import settle as let_happen
from tests.wire.batches import with_payload
from tidelog.broker.partitions.mover_ids import producer_id_of
from tidelog.broker.queues.dead_letters.topic_producer import TopicProducer
from tidelog.wire.errors import LeaderNotAvailableError, UnknownTopicError
from tidelog.wire.messages.queue_admin import AlterQueueRequest
from tidelog.wire.messages.queues import (
    FIRST_SENT_HEADER,
    ORIGIN_OFFSET_HEADER,
    ORIGIN_PARTITION_HEADER,
    ORIGIN_QUEUE_HEADER,
    ORIGIN_TOPIC_HEADER,
    REASON_HEADER,
    RECEIVE_COUNT_HEADER,
    MessageState,
    PurgeRequest,
    QueueSeekRequest,
    SettleAction,
    Settlement,
    SettleRequest,
)
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection


async def test_a_message_above_max_receive_count_is_moved_to_the_dead_letter_queue(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        dead = await create_queue(broker, "dead", topic="dead")
        settings = {"dead_letter_queue": "dead", "max_receive_count": "2"}
        queue = await create_queue(broker, **settings)  # type: ignore[arg-type]
        await produce(client, topic_of(broker), batch_of(b"bad", b"good"))
        first = await receive(client, queue)
        await settle(client, queue, first[1:])
        await settle(client, queue, first[:1], action=SettleAction.RELEASE)
        again = await receive(client, queue)
        assert [each.receive_count for each in again] == [2]
        await settle(client, queue, again, action=SettleAction.RELEASE)

        assert await receive(client, queue) == []

        letters = await received(submit_receive(client, dead, max_wait_ms=10_000))
        assert [each.value for each in letters] == [b"bad"]
        assert await states(client, queue) == (0, 0, 0, 0)
        found = await headers_at(client, topic_of(broker, "dead"), 0)
        assert found[ORIGIN_QUEUE_HEADER] == found[ORIGIN_TOPIC_HEADER] == b"orders"
        assert found[ORIGIN_PARTITION_HEADER] == found[ORIGIN_OFFSET_HEADER] == b"0"
        assert found[RECEIVE_COUNT_HEADER] == b"2"
        assert found[REASON_HEADER] == b"max_receive_count"


@pytest.mark.difference(
    "Dead letters",
    cloud="In a standard queue the retention of a dead letter counts from its first send.",
    here="It counts from the move, as in FIFO queues. `SentTimestamp` is still the time of the"
    " first send.",
    why="A late dead letter would expire before a person has seen it.",
)
@pytest.mark.statement("b54")
async def test_a_dead_letter_has_a_new_age_in_the_dead_letter_queue(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        dead = await create_queue(broker, "dead", topic="dead", retention_ms="1h")
        queue = await create_queue(broker, dead_letter_queue="dead")
        await produce(client, topic_of(broker), batch_of(b"a"))
        await world.pass_time(3500)
        await reject(client, queue, 1)
        await world.pass_time(3500)

        assert [each.value for each in await receive(client, dead)] == [b"a"]
        found = await headers_at(client, topic_of(broker, "dead"), 0)
        assert found[FIRST_SENT_HEADER] == str(START_MS).encode()


async def test_dead_letters_wait_for_a_target_on_a_full_disk(mock_clock: MockClock) -> None:
    async with dead_letter_queue(mock_clock) as (world, broker, client, _, queue):
        await produce(client, topic_of(broker), batch_of(b"a", b"b", b"c"))
        (path,) = {path for path, _ in world.segments() if path.startswith("topics/dead")}
        world.disk.fail("write_at", path=path, error_number=errno.ENOSPC, count=3)

        await reject(client, queue, 2)
        assert await states(client, queue) == (1, 0, 0, 2)
        await let_move(world, 20)

        assert await states(client, queue) == (1, 0, 0, 0)
        assert [r.value for r in await fetch_all(client, topic_of(broker, "dead"))] == [b"a", b"b"]


@pytest.mark.statement("b55")
async def test_a_move_whose_reply_was_lost_is_made_once(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        await create_queue(broker, "dead", topic="dead")
        queue = await create_queue(broker, dead_letter_queue="dead")
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        messages = await receive(client, queue)
        world.work.hold_syncs()
        submit_settle(client, queue, messages, action=SettleAction.REJECT)
        await let_happen()
        # Commit of the decision that the messages are dead: now they are produced.
        world.work.let_sync()
        await let_happen()

    world = world.after_crash()
    async with world.broker() as broker, world.client() as client:
        await let_move(world, 20)

        assert await states(client, queue) == (0, 0, 0, 0)
        values = [record.value for record in await fetch_all(client, topic_of(broker, "dead"))]
        assert values == [b"a", b"b"]


@pytest.mark.statement("b55")
async def test_dead_letters_that_arrive_late_in_smaller_batches_are_not_moved_again(
    mock_clock: MockClock,
) -> None:
    """The former leader may split a batch elsewhere: the target rejects the whole as duplicate."""
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        await create_queue(broker, "dead", topic="dead")
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        await reject(client, queue, 2)

    world = world.after_crash()
    async with world.broker() as broker, world.client() as client:
        assert (await states(client, queue))[3] == 2
        world.work.hold_reads()  # Reads of records that this process did not write.
        await alter(client, dead_letter_queue="dead")
        await let_happen()
        # The mover knows that the target has nothing, and reads the records.
        mover = producer_id_of(queue, 0)
        for sequence, value in enumerate([b"a", b"b"]):
            late = batch_of(value, producer_id=mover, sequence=sequence)
            await produce(client, topic_of(broker, "dead"), late)
        world.work.let_all_read()
        await let_move(world, 20)

        assert await values_of(client, topic_of(broker, "dead")) == [b"a", b"b"]
        assert await states(client, queue) == (0, 0, 0, 0)


@pytest.mark.statement("b55")
async def test_moved_dead_letters_that_the_log_has_deleted_are_not_sent_again(
    mock_clock: MockClock,
) -> None:
    """A batch whose beginning is deleted cannot be repeated; the target knows that it has it."""
    async with dead_letter_queue(mock_clock) as (world, broker, client, _, queue):
        await produce(client, topic_of(broker), batch_of(b"a", b"b", b"c"))
        messages = await receive(client, queue, 2)
        world.work.hold_syncs()
        pending = submit_settle(client, queue, messages, action=SettleAction.REJECT)
        await let_happen()
        (path,) = {path for path, _ in world.segments() if path.startswith("topics/queue@orders")}
        world.disk.fail("write_at", path=path, error_number=errno.ENOSPC, count=1)
        world.work.let_all_sync()
        await pending.reply()
        # The messages are at the target, and the journal had no room to record that.
        await let_happen()
        await delete_records(client, topic_of(broker), 1)

        for _ in range(4):
            await let_move(world, 20)

        assert await states(client, queue) == (1, 0, 0, 0)
        values = [record.value for record in await fetch_all(client, topic_of(broker, "dead"))]
        assert values == [b"a", b"b"]


@pytest.mark.statement("b55")
async def test_dead_letters_deleted_by_the_log_before_their_move_are_lost_and_the_rest_is_moved(
    mock_clock: MockClock,
) -> None:
    async with dead_letter_queue(mock_clock) as (world, broker, client, _, queue):
        await produce(client, topic_of(broker), batch_of(b"a", b"b", b"c", b"d"))
        (path,) = {path for path, _ in world.segments() if path.startswith("topics/dead")}
        world.disk.fail("write_at", path=path, error_number=errno.ENOSPC, count=3)
        await reject(client, queue, 2)

        await delete_records(client, topic_of(broker), 1)
        assert [each.value for each in await receive(client, queue, 1)] == [b"c"]
        await let_move(world, 20)

        assert await states(client, queue) == (1, 1, 0, 0)
        values = [record.value for record in await fetch_all(client, topic_of(broker, "dead"))]
        assert values == [b"b"]


async def test_a_purge_stops_dead_letters_that_wait_for_their_commit(mock_clock: MockClock) -> None:
    async with dead_letter_queue(mock_clock) as (world, broker, client, _, queue):
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        messages = await receive(client, queue, 2)
        world.work.hold_syncs()
        rejection = submit_settle(client, queue, messages, action=SettleAction.REJECT)
        await let_happen()  # The mover waits until the decision is committed.

        emptied = submit(client, api.PURGE, PurgeRequest(queue, [0]))
        await let_happen()
        world.work.let_all_sync()

        await rejection.reply()
        assert (await emptied.reply()).results[0].count == 2
        await let_move(world, 20)
        assert await states(client, queue) == (0, 0, 0, 0)
        assert await fetch_all(client, topic_of(broker, "dead")) == []


async def test_a_seek_past_dead_letters_that_are_being_read_leaves_them_in_the_queue(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        await create_queue(broker, "dead", topic="dead")
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", b"b", b"c"))
        await reject(client, queue, 2)

    world = world.after_crash()
    async with world.broker() as broker, world.client() as client:
        assert (await states(client, queue))[3] == 2
        world.work.hold_reads()  # Reads of records that this process did not write.
        await alter(client, dead_letter_queue="dead")
        await let_happen()
        asked = submit(client, api.QUEUE_SEEK, QueueSeekRequest(queue, 0, 2))
        await let_happen()
        world.work.let_all_read()
        raise_if((await asked.reply()).results[0].error)
        await let_move(world, 20)

        assert await states(client, queue) == (1, 0, 0, 0)
        assert await fetch_all(client, topic_of(broker, "dead")) == []
        assert [each.value for each in await receive(client, queue)] == [b"c"]


async def test_dead_letters_keep_their_origin_when_the_queue_gets_another_target(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        for name in ("dead", "other"):
            await create_queue(broker, name, topic=name)
        queue = await create_queue(broker, dead_letter_queue="dead")
        await produce(client, topic_of(broker), batch_of(b"a"))
        (path,) = {path for path, _ in world.segments() if path.startswith("topics/dead")}
        world.disk.fail("write_at", path=path, error_number=errno.ENOSPC, count=3)
        await reject(client, queue, 1)

        await alter(client, dead_letter_queue="other")
        await let_move(world, 20)

        found = await headers_at(client, topic_of(broker, "dead"), 0)
        assert found[ORIGIN_QUEUE_HEADER] == b"orders"


async def test_dead_letters_without_a_target_are_kept_until_there_is_one(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        await reject(client, queue, 1)
        seen = (await peek(client, queue, MessageState.DEAD)).runs
        assert [run.first_offset for run in seen] == [0]
        await create_queue(broker, "dead", topic="dead")

        await alter(client, dead_letter_queue="dead")
        await receive(client, queue)
        await let_move(world, 20)

        assert (await states(client, queue))[3] == 0
        values = [record.value for record in await fetch_all(client, topic_of(broker, "dead"))]
        assert values == [b"a"]


async def alter(client: RpcConnection, **settings: str) -> None:
    await submit(client, api.ALTER_QUEUE, AlterQueueRequest("orders", settings, [])).reply()


async def test_a_message_that_is_too_large_for_its_target_returns_to_the_queue(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client, "dead", max_message_bytes="1024")
        await create_queue(broker, "dead", topic="dead")
        queue = await create_queue(broker, dead_letter_queue="dead")
        await produce(client, topic_of(broker), batch_of(b"a", bytes(2000), b"c"))

        await reject(client, queue, 3)
        await let_move(world, 20)

        values = [record.value for record in await fetch_all(client, topic_of(broker, "dead"))]
        assert values == [b"a", b"c"]
        (kept,) = (await peek(client, queue)).runs
        assert (kept.first_offset, kept.count, kept.state) == (1, 1, MessageState.DELAYED)
        assert "limit" in kept.reason
        await world.pass_time(60)
        (kept,) = (await peek(client, queue)).runs
        assert (kept.first_offset, kept.count, kept.state) == (1, 1, MessageState.VISIBLE)


async def test_a_rejected_dead_letter_is_retried_with_exponential_backoff(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client, "dead", max_message_bytes="1024")
        await create_queue(broker, "dead", topic="dead")
        queue = await create_queue(broker, dead_letter_queue="dead", max_receive_count="1")
        await produce(client, topic_of(broker), batch_of(bytes(2000)))
        await receive(client, queue, visibility_timeout_ms=0)

        delays_ms: dict[int, str] = {}
        while len(delays_ms) < 6:
            await world.pass_time(20)
            assert await receive(client, queue) == []
            (kept,) = (await peek(client, queue)).runs
            if kept.state == MessageState.DELAYED:
                delays_ms[kept.visible_at_ms] = kept.reason

        times = sorted(delays_ms)
        waited = [(after - at) // 60_000 for at, after in pairwise(times)]
        assert waited == [2, 4, 8, 15, 15]
        assert "limit" in delays_ms[times[2]]
        assert "(refused 3 times, tried again after 4 min)" in delays_ms[times[2]]


async def test_undecodable_dead_letters_return_to_the_queue_and_others_are_moved(
    mock_clock: MockClock,
) -> None:
    """Any producer can send such a batch: its checksum is right."""
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_queue(broker, "dead", topic="dead")
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a"))
        await produce(client, topic_of(broker), with_payload(batch_of(b"b", b"c"), b"nonsense"))
        await produce(client, topic_of(broker), batch_of(b"d"))
        reply = await submit_receive(client, queue).reply.reply()
        everything = Settlement(0, reply.results[0].receipt, [(0, 4)], SettleAction.REJECT)
        await submit(client, api.SETTLE, SettleRequest(queue, [everything])).reply()
        await alter(client, dead_letter_queue="dead")

        await let_move(world, 20)

        values = [record.value for record in await fetch_all(client, topic_of(broker, "dead"))]
        assert values == [b"a", b"d"]
        (kept,) = (await peek(client, queue)).runs
        assert (kept.first_offset, kept.count, kept.state) == (1, 2, MessageState.DELAYED)
        assert "decoded" in kept.reason


async def test_a_produced_batch_is_committed_when_the_call_returns(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic = await create_topic(client)
        assert broker._cluster is not None
        producer = TopicProducer(broker._cluster)

        await producer.produce((topic, 0), batch_of(b"a"))

        assert producer.topic_name(topic) == "orders"
        assert [record.value for record in await fetch_all(client, topic)] == [b"a"]


async def test_a_deleted_topic_is_told_from_one_without_a_leader(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic = await create_topic(client)
        await delete_topic(client)
        assert broker._cluster is not None
        producer = TopicProducer(broker._cluster)

        with pytest.raises(UnknownTopicError):
            await producer.produce((topic, 0), batch_of(b"a"))
        with pytest.raises(LeaderNotAvailableError):
            await producer.produce((b"another topic...", 0), batch_of(b"a"))
