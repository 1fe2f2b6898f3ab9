"""Tests of FETCH: the batches of a reply, long polls, and errors."""

import gc
from functools import partial

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import (
    alter_topic,
    batch_of,
    create_topic,
    delete_records,
    delete_topic,
    describe,
    fetch,
    fetch_all,
    fetched,
    produce,
    submit_fetch,
    submit_produce,
)
from tests.broker.logs import TOPIC_ID, append, config_of, flush, open_partition_log
from tests.broker.world import World, settle
from tests.simulation.machine.faulty_disk import FaultyDisk
from tests.wire.memory import at_most_allocated
from tidelog.broker.partitions.log_reader import SliceReader
from tidelog.broker.partitions.partition import Partition
from tidelog.wire.batch.record_batch import has_valid_payload, parse_header
from tidelog.wire.errors import (
    BrokerError,
    CorruptRecordError,
    LogOfflineError,
    LogTruncatedError,
    NotLeaderError,
    OffsetOutOfRangeError,
    UnknownPartitionError,
    UnknownTopicIdError,
    from_wire,
)
from tidelog.wire.messages.fetch import FetchReply, FetchRequest, PartitionFetch
from tidelog.wire.protocol import api
from tidelog.wire.transport.write_buffer import FileRegion

NO_TOPIC = b"\x00" * 16
LONG_MS = 60_000


async def test_available_records_are_fetched_at_once(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(b"a", b"b"))
        await produce(client, topic, batch_of(b"c"))

        result = await fetch(client, topic, 1, max_wait_ms=LONG_MS)

        assert result.records == [(1, b"b"), (2, b"c")]
        assert (result.high_watermark, result.log_start_offset) == (3, 0)


async def test_a_fetch_without_wait_time_is_answered_at_once(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)

        assert (await fetch(client, topic, max_wait_ms=0)).records == []


async def test_a_long_poll_is_answered_by_an_append(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic = await create_topic(client)
        waiting = submit_fetch(client, [(topic, 0, 0)], max_wait_ms=LONG_MS)
        await settle()
        assert broker.statistics().waiting_count == 1

        await produce(client, topic, batch_of(b"a"))
        (result,) = await fetched(waiting)

        assert result.values == [b"a"]
        assert broker.statistics().waiting_count == broker.statistics().waiter_count == 0


async def test_a_long_poll_is_not_answered_by_other_partitions(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, partitions=3)
        waiting = submit_fetch(client, [(topic, 0, 0), (topic, 1, 0)], max_wait_ms=LONG_MS)

        await produce(client, topic, batch_of(b"elsewhere"), partition=2)
        await settle()

        assert not waiting.is_answered
        await produce(client, topic, batch_of(b"here"), partition=1)
        assert [result.values for result in await fetched(waiting)] == [[], [b"here"]]


async def test_a_long_poll_ends_when_its_time_is_over(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic = await create_topic(client)
        waiting = submit_fetch(client, [(topic, 0, 0)], max_wait_ms=300)
        await settle()

        await world.pass_time(0.29)
        was_answered_early = waiting.is_answered
        await world.pass_time(0.04)

        assert not was_answered_early
        assert waiting.is_answered
        assert (await fetched(waiting))[0].records == []
        assert broker.statistics().waiting_count == broker.statistics().waiter_count == 0


async def test_a_long_poll_waits_for_as_many_bytes_as_it_wants(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        waiting = submit_fetch(client, [(topic, 0, 0)], max_wait_ms=LONG_MS, min_bytes=2000)
        for _ in range(2):
            await produce(client, topic, batch_of(bytes(700)))
            await settle()
            assert not waiting.is_answered

        await produce(client, topic, batch_of(bytes(700)))

        assert len((await fetched(waiting))[0].records) == 3


async def test_a_long_poll_does_not_wait_for_more_than_max_bytes(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, segment_bytes="8KiB")
        for _ in range(10):
            await produce(client, topic, batch_of(bytes(3000)))
        greedy = {"max_wait_ms": LONG_MS, "min_bytes": 1 << 40}

        by_partition = submit_fetch(client, [(topic, 0, 0)], max_partition_bytes=7000, **greedy)
        by_request = submit_fetch(client, [(topic, 0, 0)], max_bytes=7000, **greedy)
        by_segment = submit_fetch(client, [(topic, 0, 0)], **greedy)
        at_the_end = submit_fetch(client, [(topic, 0, 9)], **greedy)
        await settle()

        # Waiting would not make these replies larger.
        assert by_partition.is_answered
        assert by_request.is_answered
        assert by_segment.is_answered
        assert not at_the_end.is_answered


async def test_a_long_poll_does_not_wait_when_the_next_partition_does_not_fit(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, partitions=2)
        for partition in (0, 1):
            await produce(client, topic, batch_of(bytes(3000)), partition=partition)
        wanted = [(topic, 0, 0), (topic, 1, 0)]

        pending = submit_fetch(
            client, wanted, max_bytes=5000, max_wait_ms=LONG_MS, min_bytes=1 << 40
        )
        await settle()

        assert pending.is_answered
        assert [len(result.records) for result in await fetched(pending)] == [1, 0]


async def test_uncommitted_records_are_not_fetched(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(b"committed"))
        world.work.hold_syncs()
        pending = submit_produce(client, topic, batch_of(b"not yet"))
        waiting = submit_fetch(client, [(topic, 0, 1)], max_wait_ms=LONG_MS)
        await settle()

        assert (await fetch(client, topic)).values == [b"committed"]
        # The partition has neither the record nor an error.
        assert (await fetch(client, topic, 2)).values == []
        assert not waiting.is_answered

        world.work.let_all_sync()
        await pending.reply()
        assert (await fetched(waiting))[0].values == [b"not yet"]


async def test_a_fetch_returns_one_batch_whatever_the_limit(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, index_interval_bytes="256", partitions=2)
        for partition in (0, 1):
            for _ in range(3):
                await produce(client, topic, batch_of(bytes(1000)), partition=partition)

        for limits in ({"max_bytes": 0}, {"max_bytes": 1}, {"max_partition_bytes": 0}):
            pending = submit_fetch(client, [(topic, 0, 1), (topic, 1, 0)], **limits)
            first, second = await fetched(pending)

            assert [record.offset for record in first.records] == [1]
            assert len(second.records) == ("max_partition_bytes" in limits)
            assert second.error is None


async def test_partitions_are_served_in_order_until_the_reply_is_full(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, partitions=3)
        for partition in range(3):
            await produce(client, topic, batch_of(bytes(1000)), partition=partition)
        wanted = [(topic, 2, 0), (topic, 0, 0), (topic, 1, 0)]

        results = await fetched(submit_fetch(client, wanted, max_bytes=2300))

        assert [len(result.records) for result in results] == [1, 1, 0]
        assert [result.high_watermark for result in results] == [1, 1, 1]


async def test_fetch_max_bytes_limits_every_reply(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(fetch_max_bytes=1 << 20), world.client() as client:
        topic = await create_topic(client)
        for _ in range(4):
            await produce(client, topic, batch_of(bytes(400_000)))

        result = await fetch(client, topic, max_bytes=1 << 60, max_partition_bytes=1 << 60)

        assert len(result.records) == 2


async def test_an_offset_out_of_range_is_refused_with_both_bounds(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(b"a", b"b", b"c"))
        await delete_records(client, topic, 1)

        for offset in (0, 4, -1, 1 << 62):
            with pytest.raises(OffsetOutOfRangeError) as refusal:
                await fetch(client, topic, offset, max_wait_ms=LONG_MS)

            assert (refusal.value.log_start_offset, refusal.value.log_end_offset) == (1, 3)
        assert (await fetch(client, topic, 1)).values == [b"b", b"c"]


async def test_a_fetch_with_an_epoch_that_did_not_write_the_records_below_is_refused(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(b"a", b"b", b"c"))

        async def call(offset: int, last_fetched_epoch: int | None) -> tuple[FetchReply, bytes]:
            part = PartitionFetch(topic, 0, offset, 1 << 20, last_fetched_epoch=last_fetched_epoch)
            request = FetchRequest(0, 1, 1 << 20, [part])
            return await client.call(
                api.FETCH, request, take=lambda reply, data: (reply, bytes(data))
            )

        async def ask(offset: int, last_fetched_epoch: int) -> BrokerError | None:
            reply, _ = await call(offset, last_fetched_epoch)
            error = reply.results[0].error
            return None if error is None else from_wire(error)

        header = parse_header((await call(0, None))[1])
        assert header is not None
        epoch = header.leader_epoch

        assert await ask(3, epoch) is None
        assert await ask(0, epoch - 1) is None
        older = await ask(2, epoch - 1)
        assert isinstance(older, LogTruncatedError)
        assert (older.truncated_to, older.fetch_offset, older.leader_epoch) == (0, 2, None)
        beyond = await ask(5, epoch)
        assert isinstance(beyond, LogTruncatedError)
        assert (beyond.truncated_to, beyond.fetch_offset, beyond.leader_epoch) == (3, 5, epoch)
        later = await ask(3, epoch + 1)
        assert isinstance(later, NotLeaderError)

        await delete_records(client, topic, 2)
        assert await ask(2, epoch - 1) is None, "the records below were deleted"
        assert isinstance(await ask(1, epoch - 1), OffsetOutOfRangeError)


async def test_refused_fetches_do_not_stay_in_purgatory(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        wanted = [(await create_topic(client), 0, 9)]
        for _ in range(50):
            await submit_fetch(client, wanted).reply.reply()
    gc.collect()
    assert sum(type(each) is OffsetOutOfRangeError for each in gc.get_objects()) < 50


async def test_an_error_of_one_partition_does_not_affect_the_others(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(b"a"))
        wanted = [(topic, 5, 0), (NO_TOPIC, 0, 0), (topic, 0, 0), (topic, 0, 9)]

        results = await fetched(submit_fetch(client, wanted, max_wait_ms=LONG_MS))

        errors = [type(result.error) for result in results]
        assert errors == [
            UnknownPartitionError,
            UnknownTopicIdError,
            type(None),
            OffsetOutOfRangeError,
        ]
        assert results[2].values == [b"a"]


async def test_a_fetch_without_partitions_is_answered_at_once(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        assert await fetched(submit_fetch(client, [], max_wait_ms=LONG_MS)) == []


async def test_deleting_a_topic_ends_its_waiting_fetches(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        doomed = await create_topic(client, "doomed")
        other = await create_topic(client, "other")
        waiting = submit_fetch(client, [(other, 0, 0), (doomed, 0, 0)], max_wait_ms=LONG_MS)
        await settle()

        await delete_topic(client, "doomed")
        untouched, gone = await fetched(waiting)

        assert untouched.error is None
        assert isinstance(gone.error, UnknownTopicIdError)
        assert broker.statistics().waiter_count == 0


async def test_cold_records_are_read_in_a_thread(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, segment_bytes="8KiB")
        for number in range(10):
            await produce(client, topic, batch_of(b"%d" % number * 3000))
    async with world.broker(), world.client() as client:
        world.disk.cold_paths |= {path for path, _ in world.segments()}

        records = await fetch_all(client, topic)

        assert [record.offset for record in records] == list(range(10))


async def test_a_cold_read_does_not_block_other_fetches(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, partitions=2)
        for partition in (0, 1):
            await produce(client, topic, batch_of(bytes(50_000)), partition=partition)
        ((path, _),) = [found for found in world.segments() if "/0/" in found[0]]
        world.disk.cold_paths.add(path)
        world.work.hold_reads()

        cold = submit_fetch(client, [(topic, 0, 0)])
        await settle()

        assert len((await fetch(client, topic, partition=1)).records) == 1
        assert not cold.is_answered
        world.work.let_all_read()
        assert len((await fetched(cold))[0].records) == 1


@pytest.mark.invariant("I6")
async def test_damaged_records_are_refused_with_the_next_offset(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, partitions=2)
        for number in range(4):
            await produce(client, topic, batch_of(b"%d" % number * 600))
            await produce(client, topic, batch_of(b"intact"), partition=1)
    ((path, data),) = [found for found in world.segments() if "/0/" in found[0]]
    world.disk.flip_bit(path, data.index(b"2" * 600) + 300, 0)

    async with world.broker(), world.client() as client:
        assert [record.offset for record in (await fetch(client, topic)).records] == [0, 1]

        with pytest.raises(CorruptRecordError) as refusal:
            await fetch(client, topic, 2)

        assert (refusal.value.offset, refusal.value.next_offset) == (2, 3)
        assert [record.offset for record in (await fetch(client, topic, 3)).records] == [3]
        assert len(await fetch_all(client, topic, partition=1)) == 4
        assert (await describe(client, partition=0)).status == "damaged"
        assert (await describe(client, partition=1)).status == "online"
        assert len(world.told("log_damaged")) == 1, "the first use looks at the last batches"
        # The partition still accepts records.
        assert (await produce(client, topic, batch_of(b"new"))).base_offset == 4


async def test_a_disk_that_cannot_be_read_takes_only_its_partition_offline(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, partitions=3)
        for partition in range(3):
            await produce(client, topic, batch_of(bytes(5000)), partition=partition)
        paths = [path for path, _ in world.segments()]
        world.disk.cold_paths.add(paths[0])  # Read by a thread; the next one is read at once.
        world.disk.fail("read_at", path=paths[0], count=1 << 30)
        world.disk.fail("read_at", path=paths[1], count=1 << 30)

        results = await fetched(submit_fetch(client, [(topic, number, 0) for number in range(3)]))

        assert [type(result.error) for result in results] == [
            LogOfflineError,
            LogOfflineError,
            type(None),
        ]
        assert len(results[2].records) == 1
        assert (await describe(client, partition=0)).status == "offline"
        assert (await describe(client, partition=2)).status == "online"
        assert len(world.told("log_status_changed")) == 2


async def test_a_truncated_segment_file_takes_the_log_offline(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(bytes(5000)))
        ((path, data),) = world.segments()
        world.disk.cut_file(path, len(data) - 100)

        with pytest.raises(LogOfflineError, match="the file is shorter than it was"):
            await fetch(client, topic)


async def test_a_failed_disk_under_a_long_poll_does_not_stop_the_broker(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic = await create_topic(client, partitions=2)
        waiting = submit_fetch(client, [(topic, 0, 0)], max_wait_ms=LONG_MS)
        expiring = submit_fetch(client, [(topic, 0, 0)], max_wait_ms=200, min_bytes=1 << 20)
        await settle()
        world.disk.fail("read_at", count=1 << 30)

        await produce(client, topic, batch_of(b"a"))
        (woken,) = await fetched(waiting)
        await world.pass_time(1)
        (expired,) = await fetched(expiring)

        assert isinstance(woken.error, LogOfflineError)
        assert isinstance(expired.error, LogOfflineError)
        assert broker.statistics().waiter_count == broker.statistics().waiting_count == 0
        await produce(client, topic, batch_of(b"b"), partition=1)


async def test_a_fetch_that_finds_a_failed_disk_while_it_is_woken_is_answered_once(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        sound = await create_topic(client, "sound", durability="replicated")
        broken = await create_topic(client, "broken")
        await produce(client, broken, batch_of(b"a"))
        wanted = [(sound, 0, 0), (broken, 0, 0)]
        waiting = submit_fetch(client, wanted, max_wait_ms=LONG_MS, min_bytes=1 << 20)
        world.work.hold_syncs()
        # With uncommitted records, the end of the committed ones must be looked up.
        not_committed = submit_produce(client, broken, batch_of(b"b"))
        await settle()
        ((path, _),) = [found for found in world.segments() if "broken" in found[0]]
        world.disk.fail("read_at", path=path, count=1 << 30)

        await produce(client, sound, batch_of(b"c"))
        woken, refused = await fetched(waiting)

        assert woken.values == [b"c"]
        assert isinstance(refused.error, LogOfflineError)
        assert not_committed.is_answered
        assert broker.statistics().waiter_count == broker.statistics().waiting_count == 0
        world.work.let_all_sync()


@pytest.mark.invariant("I21")
async def test_deleted_segments_are_read_to_the_end_by_fetches_under_way(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    world.network.buffer_bytes = 1000
    async with world.broker(maintenance_interval_ms=1000), world.client() as client:
        topic = await create_topic(client, segment_bytes="64KiB")
        for number in range(5):
            await produce(client, topic, batch_of(b"%d" % number * 40_000))
        slow = await world.raw_client()
        await slow.introduce()
        request = FetchRequest(0, 1, 1 << 20, [PartitionFetch(topic, 0, 0, 1 << 20)])
        await slow.send(slow.request(api.FETCH, request))
        await settle()

        await alter_topic(client, retention_bytes="1")
        await world.pass_time(2)

        assert (await describe(client)).log_start_offset > 0
        assert len(world.segments()) == 1
        (reply,) = await slow.replies(1)
        header = parse_header(reply.attachment)
        assert header is not None
        assert has_valid_payload(header, reply.attachment[: header.size])


async def test_a_waiting_fetch_is_answered_when_the_broker_stops(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker():
        async with world.client() as client:
            topic = await create_topic(client)
        waiting = await world.raw_client()
        await waiting.introduce()
        request = FetchRequest(LONG_MS, 1, 1 << 20, [PartitionFetch(topic, 0, 0, 1 << 20)])
        await waiting.send(waiting.request(api.FETCH, request))
        await settle()

    (reply,) = await waiting.replies(1)
    assert isinstance(reply.message, FetchReply)
    assert [result.error for result in reply.message.results] == [None]


async def test_unread_replies_cost_no_memory(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, partitions=20)
        for partition in range(20):
            await produce(client, topic, batch_of(bytes(20_000)), partition=partition)
        deaf = await world.raw_client()
        await deaf.introduce()
        deaf.stream.set_receive_buffer(0)
        # The fetches wait for more than there is until their time is over: then all are answered.
        partitions = [PartitionFetch(topic, number, 0, 1 << 20) for number in range(20)]
        request = FetchRequest(1000, 1 << 40, 1 << 30, partitions)
        for _ in range(200):
            await deaf.send(deaf.request(api.FETCH, request))
        await settle()

        with at_most_allocated(8 << 20):  # Of 80 MB.
            await world.pass_time(2)

        deaf.stream.close()


async def test_small_slices_are_copied_and_large_ones_are_not(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    config = config_of("fsync")
    log = open_partition_log(FaultyDisk(), config)
    append(log, b"a")
    flush(log)
    partition = Partition(TOPIC_ID, 0, log, topic="orders", config=config, probe=world.env.probe)
    part = log.read(0, max_bytes=1 << 20, high_watermark=1)
    assert part is not None
    reader = SliceReader(world.env)

    assert not reader.is_cold(part)
    piece = partial(reader.piece, partition, part.file, part.position, length=part.length)
    assert piece(room_bytes=1 << 20) == part.read()
    assert isinstance(piece(room_bytes=1), FileRegion)
    assert (await reader.load(partition, part)).length == part.length
