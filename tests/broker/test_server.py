"""Tests of a whole broker: start, stop, crashes, and many clients."""

import errno
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import final

import msgspec
import pytest
import trio
from trio.testing import MockClock

from tests.broker.broker_requests import (
    FOR_EVER_MS,
    batch_of,
    create_topic,
    delete_topic,
    describe,
    fetch,
    fetch_all,
    produce,
    submit_produce,
)
from tests.broker.world import ADDRESS, World, settle
from tests.simulation.machine.disk_contents import contents
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.coordinator.bootstrap.open_node import METADATA_DIRECTORY
from tidelog.coordinator.raft.messages import Entry, EntryKind
from tidelog.coordinator.raft_node import node as raft_node
from tidelog.coordinator.raft_node.storage import RaftStorage, open_raft_storage
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.wire.errors import (
    ConfigError,
    ConnectError,
    DataDirectoryError,
    LeaderNotAvailableError,
)
from tidelog.wire.messages.fetch import FetchRequest, PartitionFetch
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.produce import Acks, PartitionBatch, ProduceReply, ProduceRequest
from tidelog.wire.protocol import api

MiB = 1 << 20


async def test_a_broker_reports_its_start_and_stop(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker:
        assert broker.address == "broker:8433"

    assert [event.name for event in world.events if event.name.startswith("broker_")] == [
        "broker_registered",
        "broker_started",
        "broker_stopping",
        "broker_stopped",
    ]
    assert world.told("broker_started")[0]["was_clean"] is True
    assert world.told("broker_stopped")[0]["is_clean"] is True


@pytest.mark.invariant("I16")
async def test_after_a_clean_stop_nothing_is_scanned(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, partitions=3)
        await produce(client, topic, batch_of(bytes(50_000)))

    async with world.broker(), world.client() as client:
        assert world.told("log_recovered") == []
        assert [event["was_clean"] for event in world.told("broker_started")] == [True, True]
        assert len(await fetch_all(client, topic)) == 1


@pytest.mark.parametrize("limit_bytes", [1, 1 * MiB])
async def test_a_clean_stop_takes_a_snapshot_of_much_metadata(
    limit_bytes: int, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raft_node, "STOP_SNAPSHOT_BYTES", limit_bytes)
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, partitions=3)
        await produce(client, topic, batch_of(b"value"))
    _, stored, _ = open_raft_storage(METADATA_DIRECTORY, FileCache(world.disk), now_ms=0)

    assert bool(stored.snapshot.data) == (not stored.entries) == (limit_bytes == 1)
    async with world.broker(), world.client() as client:
        assert len(await fetch_all(client, topic)) == 1


async def test_a_disk_without_room_for_a_snapshot_does_not_fail_a_stop(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def has_no_room(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(raft_node, "STOP_SNAPSHOT_BYTES", 1)
    monkeypatch.setattr(RaftStorage, "compact", has_no_room)
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)

    assert world.told("broker_stopped")[0]["is_clean"] is True
    async with world.broker(), world.client() as client:
        assert await fetch_all(client, topic) == []


@pytest.mark.invariant("I16")
async def test_the_mark_of_a_clean_stop_does_not_outlive_the_next_start(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker():
        pass
    async with world.doomed_broker():
        pass

    after = world.after_power_cut(1)
    async with after.broker():
        assert after.told("broker_started")[0]["was_clean"] is False


async def test_two_brokers_cannot_use_one_data_directory(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker():
        with pytest.raises(DataDirectoryError, match="is in use"):
            async with world.broker(listen="broker:9999"):
                pass


async def test_two_brokers_cannot_listen_on_one_address(mock_clock: MockClock) -> None:
    world, other = World(mock_clock), World(mock_clock)
    other.network = world.network
    async with world.broker():
        with pytest.raises(ConfigError, match="broker:8433: Address already in use"):
            async with other.broker():
                pass
    async with other.broker():  # The data directory is not left locked either.
        pass


async def test_requests_under_way_are_finished_before_a_broker_stops(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with trio.open_nursery() as nursery:
        stop = trio.Event()
        has_stopped = trio.Event()
        is_up = trio.Event()

        async def run() -> None:
            async with world.broker():
                is_up.set()
                await stop.wait()
            has_stopped.set()

        nursery.start_soon(run)
        await is_up.wait()
        async with world.client() as helper:
            topic = await create_topic(helper)
        client = await world.raw_client()
        await client.introduce()
        world.work.hold_syncs()
        batch = batch_of(b"a")
        produce_it = ProduceRequest(Acks.ALL, FOR_EVER_MS, [PartitionBatch(topic, 0, len(batch))])
        await client.send(client.request(api.PRODUCE, produce_it, batch))
        await settle()

        stop.set()
        await settle()
        # Meanwhile new requests are refused, and new connections are not accepted.
        await client.send(client.request(api.METADATA, MetadataRequest(None)))
        (refused,) = await client.replies(1)
        with pytest.raises(ConnectError):
            async with world.client():
                pass
        assert not has_stopped.is_set()

        world.work.let_all_sync()
        (reply,) = await client.replies(1)
        await has_stopped.wait()

    assert "shutting down" in str(refused.message)
    assert isinstance(reply.message, ProduceReply)
    assert reply.message.results[0].error is None
    assert client.is_turned_away()
    assert world.told("broker_stopped")[0]["is_clean"] is True


async def test_a_client_that_reads_no_replies_delays_a_stop_by_shutdown_grace_ms(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    has_stopped = trio.Event()

    async def run() -> None:
        async with world.broker(shutdown_grace_ms=3000), world.client() as client:
            topic = await create_topic(client)
            await produce(client, topic, batch_of(bytes(900_000)))
            deaf = await world.raw_client()
            await deaf.introduce()
            request = FetchRequest(0, 1, MiB, [PartitionFetch(topic, 0, 0, MiB)])
            await deaf.send(deaf.request(api.FETCH, request))
        has_stopped.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await settle()
        await world.pass_time(2.9)
        assert not has_stopped.is_set()
        await world.pass_time(0.2)
        assert has_stopped.is_set()


async def test_a_disk_without_room_for_the_mark_does_not_fail_a_stop(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(b"a"))
        world.disk.capacity_bytes = 0

    assert world.told("broker_stopped")[0]["is_clean"] is False
    world.disk.capacity_bytes = None
    async with world.broker(), world.client() as client:
        assert (await fetch(client, topic)).values == [b"a"]


@pytest.mark.parametrize("seed", range(8))
async def test_acknowledged_records_survive_a_crash(seed: int, mock_clock: MockClock) -> None:
    random = Random(seed)
    world = World(mock_clock)
    acknowledged: dict[tuple[int, int], bytes] = {}
    topic = b""
    for life in range(4):
        async with world.doomed_broker(), world.client() as client:
            if not topic:
                topic = await create_topic(client, partitions=2, segment_bytes="4KiB")
            for number in range(random.randrange(1, 12)):
                value = b"%d/%d/" % (life, number) + bytes(random.randrange(1500))
                partition = random.randrange(2)
                result = await produce(client, topic, batch_of(value), partition=partition)
                assert (partition, result.base_offset) not in acknowledged
                acknowledged[partition, result.base_offset] = value
            world.work.hold_syncs()  # Requests under way at the crash.
            for _ in range(random.randrange(3)):
                submit_produce(client, topic, batch_of(bytes(700)), partition=random.randrange(2))
            await settle()
        world = world.after_power_cut(seed) if random.random() < 0.7 else world.after_crash()

    async with world.broker(), world.client() as client:
        for partition in (0, 1):
            found = await fetch_all(client, topic, partition)
            kept = {record.offset: record.value for record in found}
            for (where, offset), value in acknowledged.items():
                assert where != partition or kept[offset] == value
            assert sorted(kept) == list(range(len(kept)))
        assert (await describe(client)).status == "online"


async def test_a_created_topic_survives_a_power_cut_and_a_deleted_one_does_not(
    mock_clock: MockClock,
) -> None:
    for seed in range(10):
        world = World(mock_clock)
        async with world.doomed_broker(), world.client() as client:
            kept = await create_topic(client, "kept", 2)
            await create_topic(client, "gone")
            await produce(client, kept, batch_of(b"a"), partition=1)
            await delete_topic(client, "gone")

        after = world.after_power_cut(seed)
        async with after.broker(), after.client() as client:
            assert len(await fetch_all(client, kept, 1)) == 1
            reply = await client.ask(api.METADATA, MetadataRequest(None))
            assert [topic.name for topic in reply.topics] == ["kept"]
            assert len(after.disk.list_directory("topics")) == 1
            assert after.told("topic_without_metadata") == []


@pytest.mark.invariant("I14")
async def test_a_crash_at_any_disk_call_of_creating_and_deleting_leaves_a_working_broker(
    mock_clock: MockClock,
) -> None:
    async def change_topics(world: World) -> None:
        async with world.doomed_broker(), world.client() as client:
            topic = await create_topic(client, "first", 2)
            await produce(client, topic, batch_of(b"a"))
            await delete_topic(client, "first")
            await create_topic(client, "second")

    complete = World(mock_clock)
    await change_topics(complete)
    call_count = len(complete.disk.changes)
    assert call_count > 40

    for crash_at in range(1, call_count, 3):
        world = World(mock_clock)
        world.disk.before_call = crash_at_change(world.disk, crash_at)
        with pytest.raises(BaseExceptionGroup):
            await change_topics(world)
        for after in (world.after_crash(), world.after_power_cut(crash_at)):
            async with after.broker(), after.client() as client:
                reply = await client.ask(api.METADATA, MetadataRequest(None))
                for topic in reply.topics:
                    for partition in range(len(topic.partitions)):
                        batch = batch_of(b"after")
                        with suppress(LeaderNotAvailableError):
                            await produce(client, topic.topic_id, batch, partition=partition)
                            continue
                        # It was never created; the request had it created.
                        await settle()
                        await produce(client, topic.topic_id, batch, partition=partition)
                assert after.told("topic_without_metadata") == []
                stored = after.disk.list_directory("topics")
                assert len(stored) == len(reply.topics)


async def test_a_thousand_clients_are_served(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic = await create_topic(client, partitions=10)
        clients = [await world.raw_client() for _ in range(1000)]
        for each in clients:
            await each.introduce()
        assert broker.statistics().connection_count == 1001

        batch = batch_of(b"a")
        for number, each in enumerate(clients):
            entry = PartitionBatch(topic, number % 10, len(batch))
            request = ProduceRequest(Acks.ALL, FOR_EVER_MS, [entry])
            await each.send(each.request(api.PRODUCE, request, batch))
        for each in clients:
            (reply,) = await each.replies(1)
            assert isinstance(reply.message, ProduceReply)
            assert reply.message.results[0].error is None

        for each in clients:
            each.stream.close()
        await settle()
        assert broker.statistics().connection_count == 1
        assert broker.statistics().queued_max_request_bytes == 0


async def test_connections_beyond_the_limit_are_closed_at_once(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(max_connections=3):
        clients = [await world.raw_client() for _ in range(3)]
        for client in clients:
            await client.introduce()
        clients += [await world.raw_client() for _ in range(2)]
        await settle()

        assert [each.is_turned_away() for each in clients] == [False] * 3 + [True] * 2
        assert "3 connections already" in str(world.told("connection_refused")[0]["reason"])
        clients[0].stream.close()
        await settle()
        async with world.client():
            pass


async def test_connections_are_accepted_again_after_file_descriptors_ran_out(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        listener = world.network.listeners[ADDRESS]
        listener.fail_accept(errno.EMFILE)
        listener.fail_accept(errno.EMFILE)
        late = await world.raw_client()
        await settle()
        assert len(world.told("accept_failed")) == 1

        await world.pass_time(0.11)
        await world.pass_time(0.11)
        await late.introduce()

        assert len(world.told("accept_failed")) == 1, "the log has one line for each minute"
        await create_topic(client)


async def test_a_defect_of_a_connection_ends_only_that_connection(
    mock_clock: MockClock, defects: list[str]
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic = await create_topic(client)
        broken = await world.raw_client()
        await broken.introduce()

        broken.stream.break_peer(ZeroDivisionError("no such luck"))
        await settle()

        assert "no such luck" in defects.pop()
        assert broken.is_turned_away()
        assert broker.statistics().connection_count == 1
        await produce(client, topic, batch_of(b"a"))


async def test_files_of_unknown_topics_are_kept_and_reported_at_a_start(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await create_topic(client)
    unknown = "topics/orders." + "ab" * 16
    world.disk.make_directory(f"{unknown}/0")
    world.disk.make_directory("topics/lost+found")

    async with world.broker():
        assert world.told("topic_without_metadata") == [
            {"severity": "warning", "topic": "orders", "directory": unknown}
        ]
        assert world.disk.exists(unknown)


async def test_topics_with_batches_above_the_frame_limit_are_reported(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await create_topic(client, "large", max_message_bytes="8MiB")
        await create_topic(client, "usual")

    async with world.broker(socket_request_max_bytes="4MiB"):
        (warning,) = world.told("batches_beyond_frames")
        assert (warning["topic"], warning["max_message_bytes"]) == ("large", 8 * MiB)


async def test_an_exception_in_the_block_ends_the_broker_as_in_a_crash(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    with pytest.raises(ZeroDivisionError, match="over"):
        async with world.broker():
            raise ZeroDivisionError("over")

    assert world.told("broker_stopped") == []
    async with world.broker():
        assert world.told("broker_started")[1]["was_clean"] is False


@final
class ProcessEndedError(BaseException):
    """End of the process at this call."""


def crash_at_change(disk: FaultyDisk, count: int) -> Callable[[str, str], None]:
    """Return a hook that ends the process at the `count`-th changing call."""

    def crash(operation: str, path: str) -> None:
        del operation
        if len(disk.changes) == count:
            raise ProcessEndedError(path)

    return crash


async def test_damaged_metadata_is_refused_rather_than_guessed(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await create_topic(client)
    (segment,) = (path for path in contents(world.disk, "metadata") if path.endswith(".log"))
    after = world.after_crash()
    after.disk.flip_bit(segment, 64 + 100, 3)

    with pytest.raises(DataDirectoryError, match=r"metadata is damaged.*from a backup"):
        async with after.broker():
            pass


@pytest.mark.parametrize(
    "record",
    [
        ["topic-moved", bytes(16), 7],
        ["topic-created", "orders", bytes(16), 3, {"min_insync_replicas": "16"}],
        ["topic-created", "orders", bytes(16), "three", {}],
        "no record at all",
    ],
)
async def test_metadata_of_a_newer_version_is_refused_with_advice(
    mock_clock: MockClock, record: object
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await create_topic(client)
    append_to_metadata(world.disk, msgspec.msgpack.encode([record]))

    with pytest.raises(DataDirectoryError, match=r"does not understand.*use the version"):
        async with world.broker():
            pass


def append_to_metadata(disk: FaultyDisk, payload: bytes) -> None:
    """Add an entry to the metadata of a stopped broker."""
    storage, stored, _ = open_raft_storage(METADATA_DIRECTORY, FileCache(disk), now_ms=0)
    index = storage.last_index + 1
    term = stored.vote.hard_state.term
    storage.append([Entry(index, term, EntryKind.COMMAND, payload)], now_ms=0)
    storage.close()


async def test_a_sole_broker_syncs_a_few_bytes_without_a_thread(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic_id = await create_topic(client, "orders")
        for _ in range(3):
            await produce(client, topic_id, batch_of(b"one"))
        assert world.work.brief_count > 0
