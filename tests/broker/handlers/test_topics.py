"""Tests of creating, describing, altering and deleting topics."""

import errno

import pytest
import trio
from trio.testing import MockClock

from tests.broker.broker_requests import (
    Pending,
    alter_topic,
    batch_of,
    create_topic,
    delete_topic,
    describe,
    fetch,
    fetch_all,
    produce,
    submit,
    submit_fetch,
    submit_produce,
)
from tests.broker.world import World, settle
from tidelog.wire.errors import (
    DiskFullError,
    InvalidConfigError,
    InvalidTopicError,
    LeaderNotAvailableError,
    LogOfflineError,
    TopicExistsError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from tidelog.wire.messages.cluster_admin import AlterClusterConfigRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.topics import (
    AlterTopicReply,
    AlterTopicRequest,
    CreateTopicReply,
    CreateTopicRequest,
    DescribeTopicsRequest,
    TopicDescription,
)
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection


def submit_create(
    client: RpcConnection,
    name: str,
    partitions: int = 1,
    *,
    validate_only: bool = False,
    **config: str,
) -> Pending[CreateTopicReply]:
    request = CreateTopicRequest(name, partitions, config, validate_only)
    return submit(client, api.CREATE_TOPIC, request)


async def alter(
    client: RpcConnection, *, reset: list[str] | None = None, **config: str
) -> AlterTopicReply:
    request = AlterTopicRequest("orders", config, reset or [])
    return await submit(client, api.ALTER_TOPIC, request).reply()


async def topic_names(client: RpcConnection) -> list[str]:
    reply = await client.ask(api.METADATA, MetadataRequest(None))
    return [topic.name for topic in reply.topics]


async def test_a_new_topic_can_be_used_at_once(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        reply = await submit_create(client, "orders", 3, retention_ms="1h").reply()

        assert len(reply.topic_id) == 16
        assert reply.partition_count == 3
        assert reply.config["retention_ms"] == "1h"
        assert reply.config["durability"] == "fsync"
        for partition in range(3):
            await produce(client, reply.topic_id, batch_of(b"a"), partition=partition)


async def test_a_topic_survives_a_restart(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, "orders", 2, segment_bytes="8KiB")
        await produce(client, topic, batch_of(b"a"), partition=1)

    async with world.broker(), world.client() as client:
        reply = await submit(client, api.DESCRIBE_TOPICS, DescribeTopicsRequest(None)).reply()

        (described,) = reply.topics
        assert described.topic_id == topic
        assert described.config["segment_bytes"] == "8KiB"
        assert described.config_overrides == ["segment_bytes"]
        assert [each.log_end_offset for each in described.partitions] == [0, 1]


async def test_validate_only_creates_no_topic(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        reply = await submit_create(client, "orders", 3, validate_only=True).reply()

        assert (reply.topic_id, reply.partition_count) == (b"", 3)
        assert reply.config["retention_ms"] == "7d"
        assert await topic_names(client) == []
        with pytest.raises(InvalidTopicError):
            await submit_create(client, "or/ders", validate_only=True).reply()
        await create_topic(client, "orders")
        with pytest.raises(TopicExistsError):
            await submit_create(client, "orders", validate_only=True).reply()


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/b", "../etc", "a b", "ä", "a\n", "a" * 250, "a\x00", "%s", "\ud7ff"],
)
async def test_illegal_names_are_refused(name: str, mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        with pytest.raises(InvalidTopicError, match="cannot be the name of a topic"):
            await create_topic(client, name)

        assert world.disk.list_directory("topics") == []


@pytest.mark.parametrize(
    "name", ["a", "a...", "a" * 249, "a-", "_", "Order.v1_new-2", "0" + "." * 99]
)
async def test_legal_topic_names_of_every_kind_become_directories(
    name: str, mock_clock: MockClock
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, name)
        await produce(client, topic, batch_of(b"a"))

    async with world.broker(), world.client() as client:
        assert len(await fetch_all(client, topic)) == 1
        await delete_topic(client, name)

        assert world.disk.list_directory("topics") == []
        assert world.told("topic_without_metadata") == []


@pytest.mark.parametrize("partitions", [0, -1, 10_001, 1 << 40])
async def test_illegal_partition_counts_are_refused(partitions: int, mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        with pytest.raises(InvalidTopicError, match="1 to 10000 are"):
            await create_topic(client, "orders", partitions)


async def test_an_existing_topic_name_is_refused(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        refusals: list[TopicExistsError] = []
        for pending in [submit_create(client, "orders") for _ in range(3)]:
            try:
                await pending.reply()
            except TopicExistsError as error:
                refusals.append(error)

        assert [str(error) for error in refusals] == ["there is a topic 'orders' already"] * 2
        assert await topic_names(client) == ["orders"]


async def test_unknown_settings_and_bad_values_are_refused_with_valid_ones(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        with pytest.raises(InvalidConfigError, match="there is no topic setting 'retention'"):
            await create_topic(client, "orders", retention="7d")
        with pytest.raises(InvalidConfigError, match="it must be one of fsync, replicated"):
            await create_topic(client, "orders", durability="maybe")
        await create_topic(client)
        with pytest.raises(InvalidConfigError, match="retention_ms is 'soon', it must be a dur"):
            await alter(client, retention_ms="soon")
        with pytest.raises(InvalidConfigError, match="there is no topic setting 'color'"):
            await alter(client, reset=["color"])
        with pytest.raises(InvalidConfigError, match="cannot be set and reset at the same time"):
            await alter(client, reset=["retention_ms"], retention_ms="1d")


async def test_max_message_bytes_must_fit_into_the_frames_of_this_broker(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(socket_request_max_bytes=4 << 20), world.client() as client:
        for request in (
            submit_create(client, "orders", max_message_bytes="4MiB"),
            submit_create(client, "orders", max_message_bytes="4MiB", validate_only=True),
        ):
            with pytest.raises(
                InvalidConfigError, match="this broker's socket_request_max_bytes allows"
            ):
                await request.reply()
        await create_topic(client, max_message_bytes="3MiB")
        with pytest.raises(
            InvalidConfigError, match="this broker's socket_request_max_bytes allows"
        ):
            await alter(client, max_message_bytes="4MiB")


async def test_altered_topic_settings_hold_at_once_and_after_a_restart(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, max_message_bytes="1KiB")
        large = batch_of(bytes(5000))

        reply = await alter(client, max_message_bytes="8KiB")

        assert reply.config["max_message_bytes"] == "8KiB"
        await produce(client, topic, large)

    async with world.broker(), world.client() as client:
        await produce(client, topic, large)
        reply = await alter(client, reset=["max_message_bytes"])
        assert reply.config["max_message_bytes"] == "1MiB"


async def test_a_reset_topic_setting_gets_the_default_of_the_broker(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    defaults = {"durability": "replicated", "retention_ms": "1d"}
    async with world.broker(topic_defaults=defaults), world.client() as client:
        reply = await submit_create(client, "orders", retention_ms="2d").reply()
        assert reply.config["durability"] == "replicated"
        assert reply.config["retention_ms"] == "2d"

        altered = await alter(client, reset=["retention_ms", "segment_ms"], durability="fsync")

        assert altered.config["retention_ms"] == "1d"
        assert altered.config["segment_ms"] == "7d"
        assert altered.config["durability"] == "fsync"


async def test_deleting_a_topic_removes_records_and_files(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, partitions=3)
        await produce(client, topic, batch_of(b"a"))

        await delete_topic(client)

        assert world.disk.list_directory("topics") == []
        assert not world.disk.exists("deleted")
        assert await topic_names(client) == []
        with pytest.raises(UnknownTopicIdError, match="it was deleted, or never existed here"):
            await fetch(client, topic)
        with pytest.raises(UnknownTopicIdError):
            await produce(client, topic, batch_of(b"a"))
        with pytest.raises(UnknownTopicError, match="there is no topic 'orders'; create it"):
            await delete_topic(client)


async def test_a_reused_topic_name_has_nothing_of_the_deleted_topic(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        old = await create_topic(client)
        await produce(client, old, batch_of(b"old", producer_id=1))
        await delete_topic(client)

        new = await create_topic(client)

        assert new != old
        assert await fetch_all(client, new) == []
        with pytest.raises(UnknownTopicIdError):
            await produce(client, old, batch_of(b"to the old one"))
        assert (await produce(client, new, batch_of(b"new", producer_id=1))).base_offset == 0


async def test_a_topic_deleted_during_a_sync_is_removed_after_the_sync(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client, trio.open_nursery() as nursery:
        topic = await create_topic(client)
        world.work.hold_syncs()
        pending = submit_produce(client, topic, batch_of(b"a"))
        await settle()

        nursery.start_soon(delete_topic, client)
        await settle()
        assert pending.is_answered
        assert world.disk.list_directory("topics") != []

        world.work.let_all_sync()
        await settle()
        assert world.disk.list_directory("topics") == []
    assert world.told("log_status_changed") == []


async def test_a_topic_can_be_deleted_while_its_records_are_read(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(b"a"))
        world.disk.cold_paths |= {path for path, _ in world.segments()}
        world.work.hold_reads()
        reading = submit_fetch(client, [(topic, 0, 0)])
        await settle()

        await delete_topic(client)
        world.work.let_all_read()

        assert len((await reading.reply.reply_and_attachment())[1]) > 0


async def test_files_that_cannot_be_removed_do_not_keep_a_topic(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await create_topic(client)
        world.disk.fail("rename", error_number=errno.EACCES)

        await delete_topic(client)

        assert await topic_names(client) == []
        assert len(world.told("files_left_over")) == 1
        assert world.disk.list_directory("topics") != []
    async with world.broker():
        assert world.disk.list_directory("topics") == []


async def test_other_topics_are_usable_while_one_is_created(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        other = await create_topic(client, "other")
        world.work.hold_work()
        creating = submit_create(client, "orders", 2)
        await settle()
        world.work.let_one()  # The record of the topic, not yet its logs.
        await settle()
        assert not creating.is_answered

        reply = await client.ask(api.METADATA, MetadataRequest(None))
        description = await describe(client)

        assert [topic.name for topic in reply.topics] == ["orders", "other"]
        leaders = [partition.leader_id for partition in reply.topics[0].partitions]
        assert leaders == [None, None]
        assert (description.leader_id, description.status) == (None, "offline")
        with pytest.raises(LeaderNotAvailableError, match="is being opened"):
            await fetch(client, reply.topics[0].topic_id)
        assert (await fetch(client, other)).records == []
        world.work.let_all()
        await creating.reply()
        assert (await describe(client)).leader_id == 1


async def test_a_topic_without_room_is_opened_when_there_is_room(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(maintenance_interval_ms=1000), world.client() as client:
        await create_topic(client, "other")
        world.disk.before_call = no_room_for_segments

        with pytest.raises(DiskFullError, match="is opened as soon as there is room"):
            await create_topic(client, "orders", 2)
        await world.pass_time(5)
        assert (await describe(client)).status == "offline"
        assert await topic_names(client) == ["orders", "other"]

        world.disk.before_call = None
        await world.pass_time(1.1)
        assert (await describe(client)).status == "online"
        reply = await client.ask(api.METADATA, MetadataRequest(["orders"]))
        await produce(client, reply.topics[0].topic_id, batch_of(b"a"), partition=1)


async def test_creating_a_topic_again_finishes_an_incomplete_creation(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        world.disk.before_call = no_room_for_segments
        with pytest.raises(DiskFullError):
            await create_topic(client, "orders", 2, retention_ms="1d")
        world.disk.before_call = None

        with pytest.raises(TopicExistsError):
            await create_topic(client, "orders", 3, retention_ms="1d")
        topic = await create_topic(client, "orders", 2, retention_ms="1d")

        await produce(client, topic, batch_of(b"a"))
        with pytest.raises(TopicExistsError):
            await create_topic(client, "orders", 2, retention_ms="1d")


async def test_an_incomplete_topic_is_opened_after_a_restart(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        world.disk.before_call = no_room_for_segments
        with pytest.raises(DiskFullError):
            await create_topic(client, "orders", 2)
        world.disk.before_call = None

    async with world.broker(), world.client() as client:
        assert (await describe(client, partition=1)).status == "online"


async def test_an_incomplete_topic_can_be_altered_and_deleted(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        world.disk.before_call = no_room_for_segments
        with pytest.raises(DiskFullError):
            await create_topic(client, "orders", 2)

        await alter_topic(client, retention_ms="1d")
        await delete_topic(client)

        assert await topic_names(client) == []
        world.disk.before_call = None
        await create_topic(client)


async def test_a_disk_that_fails_while_a_topic_is_created_is_reported(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        other = await create_topic(client, "other")
        world.disk.before_call = fail_making_segments

        with pytest.raises(
            LogOfflineError, match="the disk failed while topic 'orders' was opened"
        ):
            await create_topic(client)

        world.disk.before_call = None
        await produce(client, other, batch_of(b"a"))


async def test_a_topic_without_room_for_its_metadata_is_not_created(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        world.disk.capacity_bytes = 0

        with pytest.raises(DiskFullError):
            await create_topic(client)

        assert await topic_names(client) == []
        world.disk.capacity_bytes = None
        await create_topic(client)


async def test_topics_stay_unchanged_when_the_metadata_cannot_be_synced(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        world.disk.before_call = fail_syncing_metadata

        for _ in range(2):
            with pytest.raises(LogOfflineError, match="metadata"):
                await create_topic(client, "other")
        with pytest.raises(LogOfflineError):
            await delete_topic(client)

        assert await topic_names(client) == ["orders"]
        await produce(client, topic, batch_of(b"a"))
    assert world.told("broker_stopped")[0]["is_clean"] is False


def no_room_for_segments(operation: str, path: str) -> None:
    """Leave no room for new segments."""
    if operation == "create" and path.endswith(".log"):
        raise OSError(errno.ENOSPC, "No space left on device", path)


def fail_making_segments(operation: str, path: str) -> None:
    """Fail when a segment is created."""
    if operation == "create" and path.endswith(".log"):
        raise OSError(errno.EIO, "Input/output error", path)


def fail_syncing_metadata(operation: str, path: str) -> None:
    """Fail when the metadata is synced."""
    if operation == "sync" and path.startswith("metadata/"):
        raise OSError(errno.EIO, "Input/output error", path)


async def described(client: RpcConnection) -> TopicDescription:
    """Return the description of the only topic."""
    reply = await submit(client, api.DESCRIBE_TOPICS, DescribeTopicsRequest(None)).reply()
    (topic,) = reply.topics
    return topic


async def test_a_topic_has_a_cluster_setting_unless_it_overrides_it(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await create_topic(client, "orders")
        assert (await described(client)).config_of_cluster == []
        request = AlterClusterConfigRequest({"min_insync_replicas": "2"}, [])
        await submit(client, api.ALTER_CLUSTER_CONFIG, request).reply()

        topic = await described(client)
        assert topic.config_of_cluster == ["min_insync_replicas"]
        assert topic.config["min_insync_replicas"] == "1", "there is one replica"

        await alter_topic(client, "orders", min_insync_replicas="1")
        topic = await described(client)
        assert topic.config_overrides == ["min_insync_replicas"]
        assert topic.config_of_cluster == []
