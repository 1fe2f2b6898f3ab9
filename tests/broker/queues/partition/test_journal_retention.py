"""Tests of the retention of journal history before the last snapshot."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, produce, submit
from tests.broker.queues.queue_requests import create_queue, receive, settle, states, topic_of
from tests.broker.world import World
from tests.broker.world import settle as let_happen
from tidelog.broker.partitions.log_reader import SliceReader
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.queues.partition.journal import Journal
from tidelog.broker.server import Broker
from tidelog.queue_layer.state import snapshots
from tidelog.wire.batch.record_batch import Columns, check_produced, encode_batch
from tidelog.wire.errors import ErrorCode, WireFormatError
from tidelog.wire.messages.fetch import FetchRequest, PartitionFetch
from tidelog.wire.messages.offset_ranges import ListOffsetsRequest, OffsetQuery
from tidelog.wire.messages.queue_journal import (
    BackgroundWork,
    JournalFrame,
    Received,
    Seeked,
    SnapshotStarted,
    encode,
)
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection

HISTORY_S = 3600


def journal(broker: Broker, queue_id: bytes) -> Partition:
    assert broker._partitions is not None
    found = broker._partitions.replica(queue_id, 0)
    assert found is not None
    return found


async def work_through(client: RpcConnection, queue: bytes, count: int) -> None:
    for _ in range(count):
        messages = await receive(client, queue, 1)
        await settle(client, queue, messages)


async def frames_from(broker: Broker, partition: Partition, offset: int) -> list[JournalFrame]:
    """Return all frames of the journal from an offset on."""
    assert broker._group_commit is not None
    journal = Journal(broker._env, broker._group_commit, partition)
    frames: list[JournalFrame] = []
    offsets = range(offset, partition.log.log_end_offset)
    reader = SliceReader(broker._env)
    await journal._read(reader, offsets, lambda frame, _: frames.append(frame))
    return frames


async def loaded(broker: Broker, partition: Partition) -> list[JournalFrame]:
    """Return the frames of a journal that a load reads."""
    assert broker._group_commit is not None
    frames: list[JournalFrame] = []
    journal = Journal(broker._env, broker._group_commit, partition)
    await journal.load(SliceReader(broker._env), frames.append)
    return frames


async def test_history_before_a_snapshot_is_kept_for_history_retention_ms(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "BYTES_SINCE_MIN", 1000)
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, history_retention_ms=f"{HISTORY_S}s")
        await produce(client, topic_of(broker), batch_of(*[b"%d" % n for n in range(300)]))
        log = journal(broker, queue).log
        await work_through(client, queue, 60)
        await world.pass_time(HISTORY_S / 2)
        await work_through(client, queue, 60)
        assert log.log_start_offset == 0

        middle = log.log_end_offset
        await world.pass_time(HISTORY_S * 3 / 4)
        await work_through(client, queue, 60)
        await let_happen()

        assert 0 < log.log_start_offset < middle
        frames = await frames_from(broker, journal(broker, queue), log.log_start_offset)
        assert isinstance(frames[0].entries[0], SnapshotStarted)
        handed_out = [
            entry.runs for frame in frames for entry in frame.entries if isinstance(entry, Received)
        ]
        assert [[(offset, 1)] for offset in range(60, 180)] == handed_out[-120:]
        assert not world.told("queue_history_not_cut")


async def test_a_new_leader_reads_the_journal_from_the_last_snapshot(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "BYTES_SINCE_MIN", 1000)
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(*[b"%d" % n for n in range(300)]))
        for _ in range(100):
            first, *_ = await receive(client, queue, 2)
            await settle(client, queue, [first])
        before = await states(client, queue)
        assert journal(broker, queue).log.log_end_offset > 200

        frames = await loaded(broker, journal(broker, queue))

        assert isinstance(frames[0].entries[0], SnapshotStarted)
        assert len(frames) < 60

    world = world.after_crash()
    async with world.broker() as broker, world.client() as client:
        assert await states(client, queue) == before == (100, 100, 0, 0)
        assert journal(broker, queue).log.log_start_offset == 0
        await work_through(client, queue, 60)
        (last,) = await frames_from(
            broker, journal(broker, queue), journal(broker, queue).log.log_end_offset - 1
        )
        assert last.snapshot_offset is not None
        assert last.snapshot_offset > 200, "the new leader continues to write snapshots"


async def test_an_incomplete_snapshot_is_not_used(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "BYTES_SINCE_MIN", 1000)
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(*[b"%d" % n for n in range(200)]))
        await work_through(client, queue, 40)
        partition = journal(broker, queue)
        whole = (await loaded(broker, partition))[0]
        cut_off = JournalFrame(whole.now_ms, whole.entries, BackgroundWork.NOTHING, None)
        (last,) = await frames_from(broker, partition, partition.log.log_end_offset - 1)
        append(
            partition, encode(JournalFrame(whole.now_ms, cut_off.entries, 0, last.snapshot_offset))
        )

        frames = await loaded(broker, partition)

        assert frames[0] == whole
        assert frames[-1].entries == whole.entries


async def test_a_journal_without_its_named_snapshot_is_refused(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        await work_through(client, queue, 1)
        partition = journal(broker, queue)
        append(partition, encode(JournalFrame(1, [Seeked(0)], BackgroundWork.NOTHING, 1)))

        with pytest.raises(WireFormatError, match="names a snapshot at offset 1"):
            await loaded(broker, partition)


async def test_clients_read_the_journal_history_as_it_is_stored(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        await produce(client, topic_of(broker), batch_of(b"a", b"b"))
        await work_through(client, queue, 2)
        end = journal(broker, queue).log.log_end_offset
        query = ListOffsetsRequest([OffsetQuery(queue, 0)], from_journals=True)

        (found,) = (await client.ask(api.LIST_OFFSETS, query)).partitions
        wanted = FetchRequest(
            0, 1, 1 << 20, [PartitionFetch(queue, 0, 0, 1 << 20)], from_journals=True
        )
        pending = submit(client, api.FETCH, wanted)
        reply, attached = await pending.reply_and_attachment()

        assert (found.log_start_offset, found.high_watermark) == (0, end)
        (result,) = reply.results
        assert (result.error, result.high_watermark, result.log_start_offset) == (None, end, 0)
        stored = journal(broker, queue).log.read(0, max_bytes=1 << 20, high_watermark=end)
        assert stored is not None
        assert bytes(attached) == stored.file.read_at(stored.position, stored.length)


async def test_a_topic_id_names_no_journal_and_a_queue_id_no_topic(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker)
        of_topic = FetchRequest(
            0, 1, 100, [PartitionFetch(topic_of(broker), 0, 0, 100)], from_journals=True
        )
        of_queue = FetchRequest(0, 1, 100, [PartitionFetch(queue, 0, 0, 100)])

        (history,) = (await client.ask(api.FETCH, of_topic)).results
        (records,) = (await client.ask(api.FETCH, of_queue)).results

        assert history.error is not None
        assert history.error.code == ErrorCode.UNKNOWN_QUEUE
        assert records.error is not None
        assert "only brokers read" in records.error.message


def append(partition: Partition, value: bytes) -> None:
    leader = partition.leader
    assert leader is not None
    batch = memoryview(encode_batch(Columns(1, values=[value]), first_timestamp_ms=1))
    partition.log.append(batch, check_produced(batch), leader_epoch=leader.leader_epoch, now_ms=1)
