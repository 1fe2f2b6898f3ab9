"""Tests of PRODUCE: results, acknowledgements and refusals."""

import errno
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from tests.broker.broker_requests import (
    alter_topic,
    batch_of,
    create_topic,
    delete_topic,
    describe,
    fetch,
    fetch_all,
    produce,
    produce_silently,
    submit,
    submit_batches,
    submit_fetch,
    submit_produce,
)
from tests.broker.world import World, settle
from tidelog.wire.errors import (
    DiskFullError,
    DuplicateSequenceError,
    ErrorCode,
    FencedProducerError,
    LogOfflineError,
    OutOfOrderSequenceError,
    UnknownTopicIdError,
)
from tidelog.wire.messages.produce import (
    AckLevel,
    Acks,
    DescribeProducerReply,
    DescribeProducerRequest,
)
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection

NO_TOPIC = b"\x00" * 16


@pytest.mark.parametrize(
    ("acks", "durability", "level"),
    [
        (Acks.LEADER, "fsync", AckLevel.LEADER_DURABLE),
        (Acks.ALL, "fsync", AckLevel.DURABLE),
        (Acks.LEADER, "replicated", AckLevel.APPENDED),
        (Acks.ALL, "replicated", AckLevel.REPLICATED),
    ],
)
async def test_the_reply_has_the_offset_and_the_ack_level(
    acks: Acks, durability: str, level: AckLevel, *, mock_clock: MockClock
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, durability=durability)

        result = await produce(client, topic, batch_of(b"a"), acks=acks)

        assert result.ack_level == level


@pytest.mark.parametrize("acks", [Acks.LEADER, Acks.ALL])
async def test_no_acknowledgement_overtakes_its_sync(acks: Acks, mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, durability="fsync")
        world.work.hold_syncs()
        pending = submit_produce(client, topic, batch_of(b"a"), acks=acks)
        await settle()
        assert not pending.is_answered
        assert (await fetch(client, topic)).values == []  # Not committed either.

        world.work.let_all_sync()
        await pending.reply()

        assert (await fetch(client, topic)).values == [b"a"]


@pytest.mark.parametrize("acks", [Acks.LEADER, Acks.ALL])
async def test_replicated_durability_acknowledges_from_memory(
    acks: Acks, mock_clock: MockClock
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, durability="replicated")
        world.work.hold_syncs()

        await produce(client, topic, batch_of(b"a"), acks=acks)

        assert (await fetch(client, topic)).values == [b"a"]
        assert world.work.sync_count == 0
        world.work.let_all_sync()


async def test_acks_0_appends_without_a_reply(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic = await create_topic(client)

        produce_silently(client, topic, batch_of(b"a"))
        produce_silently(client, NO_TOPIC, batch_of(b"nowhere"))
        await produce(client, topic, batch_of(b"b"))

        assert (await fetch(client, topic)).values == [b"a", b"b"]
        assert broker.statistics().waiting_count == 0


async def test_one_sync_covers_all_appends_during_the_previous_one(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        world.work.hold_syncs()
        first = submit_produce(client, topic, batch_of(b"first"))
        await settle()
        others = [submit_produce(client, topic, batch_of(b"%d" % n)) for n in range(50)]
        await settle()

        world.work.let_sync()
        await settle()

        assert first.is_answered
        assert not any(other.is_answered for other in others)
        assert world.work.held_count == 1
        world.work.let_sync()
        await settle()
        assert all(other.is_answered for other in others)
        assert world.work.sync_count == 2
        world.work.let_all_sync()


async def test_partitions_do_not_wait_for_each_other(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, partitions=2)
        world.work.hold_syncs()
        first = submit_produce(client, topic, batch_of(b"a"), partition=0)
        await settle()
        second = submit_produce(client, topic, batch_of(b"b"), partition=1)
        await settle()
        assert world.work.held_count == 2

        world.work.let_sync()
        await settle()

        assert first.is_answered
        assert not second.is_answered
        world.work.let_all_sync()


async def test_each_batch_of_a_request_succeeds_or_fails_on_its_own(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(b"before"))

        pending = submit_batches(
            client,
            [
                (topic, 7, batch_of(b"no such partition")),
                (topic, 0, batch_of(b"good")),
                (NO_TOPIC, 0, batch_of(b"no such topic")),
            ],
        )
        results = (await pending.reply()).results

        codes = [None if result.error is None else result.error.code for result in results]
        assert codes == [ErrorCode.UNKNOWN_PARTITION, None, ErrorCode.UNKNOWN_TOPIC_ID]
        assert results[1].base_offset == 1
        assert (await fetch(client, topic)).values == [b"before", b"good"]


async def test_a_request_without_batches_is_answered(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        assert (await submit_batches(client, []).reply()).results == []


async def test_records_that_timed_out_may_still_be_kept(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic = await create_topic(client)
        world.work.hold_syncs()
        pending = submit_produce(client, topic, batch_of(b"a"), timeout_ms=500)
        await settle()
        await world.pass_time(0.49)
        assert not pending.is_answered

        await world.pass_time(0.03)
        (result,) = (await pending.reply()).results

        assert result.error is not None
        assert result.error.code == ErrorCode.REQUEST_TIMED_OUT
        assert broker.statistics().waiting_count == 0
        world.work.let_all_sync()
        await settle()
        assert (await fetch(client, topic)).values == [b"a"]
        assert broker.statistics().waiter_count == 0


async def test_records_acknowledged_before_the_timeout_stay_acknowledged(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        world.work.hold_syncs()
        batches = [(topic, 0, batch_of(b"slow")), (topic, 9, batch_of(b"nowhere"))]
        pending = submit_batches(client, batches, timeout_ms=100)
        await settle()

        await world.pass_time(1)
        slow, nowhere = (await pending.reply()).results

        assert slow.error is not None
        assert slow.error.code == ErrorCode.REQUEST_TIMED_OUT
        assert nowhere.error is not None
        assert nowhere.error.code == ErrorCode.UNKNOWN_PARTITION
        world.work.let_all_sync()


async def test_a_duplicate_batch_gets_its_first_offset(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(b"other producer"))
        for number in range(5):
            batch = batch_of(b"x", producer_id=1, sequence=number)
            await produce(client, topic, batch)

        again = [
            await produce(client, topic, batch_of(b"x", producer_id=1, sequence=number))
            for number in range(5)
        ]

        assert [result.base_offset for result in again] == [1, 2, 3, 4, 5]
        assert all(result.ack_level == AckLevel.DURABLE for result in again)
        assert len(await fetch_all(client, topic)) == 6


async def test_a_duplicate_is_not_acknowledged_before_its_original_is_durable(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        world.work.hold_syncs()
        batch = batch_of(b"a", producer_id=1)
        first = submit_produce(client, topic, bytes(batch))
        again = submit_produce(client, topic, bytes(batch))
        await settle()
        assert not again.is_answered

        world.work.let_all_sync()

        (original,), (duplicate,) = (await first.reply()).results, (await again.reply()).results
        assert duplicate == original
        assert await fetch_all(client, topic) == [(0, b"a")]


async def test_a_duplicate_keeps_its_offset_after_a_restart(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(b"other producer"))
        await produce(client, topic, batch_of(b"a", producer_id=1))

    async with world.broker(), world.client() as client:
        again = await produce(client, topic, batch_of(b"a", producer_id=1))

        assert again.base_offset == 1
        assert len(await fetch_all(client, topic)) == 2


async def test_a_duplicate_older_than_the_window_is_recognized(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        for number in range(6):
            await produce(client, topic, batch_of(b"x", producer_id=1, sequence=number))

        with pytest.raises(DuplicateSequenceError):
            await produce(client, topic, batch_of(b"x", producer_id=1, sequence=0))


async def test_a_sequence_gap_is_refused_with_the_expected_sequence(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(b"a", b"b", producer_id=1))

        with pytest.raises(OutOfOrderSequenceError) as refusal:
            await produce(client, topic, batch_of(b"d", producer_id=1, sequence=3))

        assert refusal.value.expected_sequence == 2
        assert len(await fetch_all(client, topic)) == 2


async def test_an_older_producer_is_fenced_by_the_next_epoch(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(b"old", producer_id=1, epoch=0))
        await produce(client, topic, batch_of(b"new", producer_id=1, epoch=1))

        with pytest.raises(FencedProducerError):
            await produce(client, topic, batch_of(b"old", producer_id=1, epoch=0, sequence=1))


async def test_producer_state_does_not_depend_on_record_timestamps(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(maintenance_interval_ms=1000), world.client() as client:
        topic = await create_topic(client)
        in_1990 = 631_152_000_000
        batch = batch_of(b"old news", producer_id=1, at_ms=in_1990)
        await produce(client, topic, bytes(batch))
        await world.pass_time(3)

        again = await produce(client, topic, bytes(batch))

        assert again.base_offset == 0
        assert len(await fetch_all(client, topic)) == 1


async def test_lowered_durability_does_not_overstate_the_ack_level(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, durability="fsync")
        world.work.hold_syncs()
        for_all = submit_produce(client, topic, batch_of(b"a"), acks=Acks.ALL)
        for_leader = submit_produce(client, topic, batch_of(b"b"), acks=Acks.LEADER)
        await settle()

        await alter_topic(client, durability="replicated")

        assert (await for_all.reply()).results[0].ack_level == AckLevel.REPLICATED
        assert (await for_leader.reply()).results[0].ack_level == AckLevel.APPENDED
        world.work.let_all_sync()


async def test_when_durability_is_raised_a_duplicate_waits_for_the_disk(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, durability="replicated")
        batch = batch_of(b"a", producer_id=1)
        await produce(client, topic, bytes(batch))
        world.work.hold_syncs()

        await alter_topic(client, durability="fsync")
        again = submit_produce(client, topic, bytes(batch))
        await settle()

        assert not again.is_answered
        assert (await fetch(client, topic)).values == [b"a"]  # Committed records stay committed.
        world.work.let_all_sync()
        assert (await again.reply()).results[0].ack_level == AckLevel.DURABLE


async def test_deleting_a_topic_fails_its_waiting_produce_requests(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client, trio.open_nursery() as nursery:
        topic = await create_topic(client)
        world.work.hold_syncs()
        pending = submit_produce(client, topic, batch_of(b"a"))
        await settle()

        nursery.start_soon(delete_topic, client)
        (result,) = (await pending.reply()).results

        assert result.error is not None
        assert result.error.code == ErrorCode.UNKNOWN_TOPIC_ID
        assert broker.statistics().waiting_count == 0
        world.work.let_all_sync()
    assert world.told("log_status_changed") == []  # The sync under way was not disturbed.


async def test_on_a_full_disk_partitions_are_read_only_and_come_back_by_themselves(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(b"before"))
        world.disk.capacity_bytes = 0

        for _ in range(3):
            with pytest.raises(DiskFullError, match="read-only"):
                await produce(client, topic, batch_of(b"refused"))
        assert (await describe(client)).status == "read-only"
        assert (await fetch(client, topic)).values == [b"before"]
        assert len(world.told("log_status_changed")) == 1  # Not once for each batch.

        world.disk.capacity_bytes = None
        assert (await produce(client, topic, batch_of(b"after"))).base_offset == 1
        assert (await describe(client)).status == "online"
        assert (await fetch(client, topic)).values == [b"before", b"after"]


@pytest.mark.invariant("I17")
async def test_a_failed_sync_takes_only_its_partition_offline(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic = await create_topic(client, partitions=2)
        waiting = submit_fetch(client, [(topic, 0, 0)], max_wait_ms=60_000)
        world.disk.before_call = fail_sync_of("/0/")

        for _ in range(2):
            with pytest.raises(LogOfflineError, match="fsync failed"):
                await produce(client, topic, batch_of(b"lost"), partition=0)

        assert waiting.is_answered
        with pytest.raises(LogOfflineError):
            await fetch(client, topic, partition=0)
        assert (await describe(client, partition=0)).status == "offline"
        assert (await describe(client, partition=1)).status == "online"
        await produce(client, topic, batch_of(b"kept"), partition=1)
        assert (await fetch(client, topic, partition=1)).values == [b"kept"]
        assert len(world.told("log_status_changed")) == 1
        assert broker.statistics().waiter_count == 0
    assert world.told("broker_stopped")[0]["is_clean"] is False


async def test_a_failed_write_answers_every_waiting_request_once(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic = await create_topic(client)
        world.work.hold_syncs()
        waiting = submit_produce(client, topic, batch_of(b"a"))
        await settle()
        # The first batch of this request waits when the second one finds that the disk failed.
        world.disk.fail("write_at", nth=2)
        both = submit_batches(client, [(topic, 0, batch_of(b"b")), (topic, 0, batch_of(b"c"))])

        results = [*(await waiting.reply()).results, *(await both.reply()).results]

        codes = [None if result.error is None else result.error.code for result in results]
        assert codes == [ErrorCode.LOG_OFFLINE] * 3
        assert broker.statistics().waiting_count == 0
        world.work.let_all_sync()


async def test_a_full_disk_while_syncing_a_checkpoint_is_no_disk_failure(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, segment_bytes="4KiB")
        await produce(client, topic, batch_of(bytes(3000)))
        world.disk.before_call = fail_creating("checkpoint.tmp")

        # Rolls the segment, which makes a checkpoint due.
        await produce(client, topic, batch_of(bytes(3000)))

        assert (await describe(client)).status in {"online", "read-only"}
        world.disk.before_call = None
        await produce(client, topic, batch_of(b"after"))


def fail_sync_of(part: str) -> Callable[[str, str], None]:
    """Return a hook that fails syncs of files with this part in their path."""

    def fail(operation: str, path: str) -> None:
        if operation == "sync" and part in path:
            raise OSError(errno.EIO, "Input/output error", path)

    return fail


def fail_creating(name: str) -> Callable[[str, str], None]:
    """Return a hook that leaves no room for new files of this name."""

    def fail(operation: str, path: str) -> None:
        if operation == "create" and path.endswith(name):
            raise OSError(errno.ENOSPC, "No space left on device", path)

    return fail


async def described(client: RpcConnection, topic: bytes) -> DescribeProducerReply:
    request = DescribeProducerRequest(topic, 0, 7)
    return await submit(client, api.DESCRIBE_PRODUCER, request).reply()


async def test_describe_producer_returns_the_next_sequence(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        assert await described(client, topic) == DescribeProducerReply(None, None)

        await produce(client, topic, batch_of(b"a", b"b", producer_id=7, epoch=2))

        assert await described(client, topic) == DescribeProducerReply(2, 2)
        with pytest.raises(UnknownTopicIdError):
            await described(client, b"another topic...")


async def test_describe_producer_waits_for_the_high_watermark(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        world.work.hold_syncs()
        submit_produce(client, topic, batch_of(b"a", producer_id=7))
        await settle()

        pending = submit(client, api.DESCRIBE_PRODUCER, DescribeProducerRequest(topic, 0, 7))
        await settle()
        assert not pending.is_answered
        world.work.let_all_sync()

        assert await pending.reply() == DescribeProducerReply(0, 1)
