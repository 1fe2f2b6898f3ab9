"""Tests of encrypted topics on one broker: what is on its disk, restarts, keys, compaction."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import (
    alter_topic,
    batch_of,
    create_topic,
    fetch,
    fetch_all,
    list_offset,
    produce,
    submit,
)
from tests.broker.collectors.readings import read_metrics
from tests.broker.encryption.keyrings import MASTER, OTHER_MASTER, key_file
from tests.broker.world import START_MS, World, settle
from tests.simulation.machine.disk_contents import contents
from tests.wire.memory import at_most_allocated
from tidelog.wire.batch.record_batch import Columns, encode_batch
from tidelog.wire.errors import InvalidRequestError, KeyUnavailableError
from tidelog.wire.messages.fetch import FetchRequest, PartitionFetch
from tidelog.wire.messages.keys import (
    AlterKeysReply,
    AlterKeysRequest,
    KeyAction,
    ListKeysReply,
    ListKeysRequest,
)
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection

SECRET_VALUE = b"a value that no disk may show"


def world_with_key(time: MockClock) -> World:
    world = World(time)
    world.key_file = key_file(MASTER)
    return world


async def create_encrypted(world: World, client: RpcConnection, **config: str) -> bytes:
    """Create an encrypted topic, once the cluster has its level, and wait for its data key."""
    await world.pass_time(3)
    topic = await create_topic(client, "orders", 1, encryption="on", **config)
    await settle()
    return topic


async def alter_keys(client: RpcConnection, action: KeyAction, *key_ids: int) -> AlterKeysReply:
    topic = "" if action is KeyAction.REWRAP else "orders"
    request = AlterKeysRequest(action, topic, list(key_ids))
    return await submit(client, api.ALTER_KEYS, request).reply()


async def list_keys(client: RpcConnection) -> ListKeysReply:
    return await submit(client, api.LIST_KEYS, ListKeysRequest()).reply()


def stored(world: World) -> bytes:
    """Return all bytes of all files."""
    return b"".join(data for _, data in world.segments()) + b"".join(
        data or b"" for data in contents(world.disk, "").values()
    )


async def test_no_file_of_an_encrypted_topic_shows_a_record(mock_clock: MockClock) -> None:
    world = world_with_key(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_encrypted(world, client)

        await produce(client, topic, batch_of(SECRET_VALUE, b"b"))

        assert (await fetch(client, topic)).values == [SECRET_VALUE, b"b"]
        assert (await fetch(client, topic, 1)).values == [b"b"]
    assert SECRET_VALUE not in stored(world)
    assert MASTER not in stored(world)


async def test_a_retried_batch_is_a_duplicate(mock_clock: MockClock) -> None:
    world = world_with_key(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_encrypted(world, client)
        batch = batch_of(b"a", producer_id=9)
        first = await produce(client, topic, bytes(batch))

        again = await produce(client, topic, bytes(batch))

        assert again.base_offset == first.base_offset == 0
        assert (await fetch(client, topic)).values == [b"a"]


async def test_a_log_with_plain_and_sealed_batches_is_read(mock_clock: MockClock) -> None:
    world = world_with_key(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await world.pass_time(3)
        await produce(client, topic, batch_of(b"plain"))
        await alter_topic(client, encryption="on")
        await settle()
        await produce(client, topic, batch_of(SECRET_VALUE))
        await alter_topic(client, encryption="off")
        await produce(client, topic, batch_of(b"plain again"))

        records = await fetch_all(client, topic)

        assert [record.value for record in records] == [b"plain", SECRET_VALUE, b"plain again"]
    assert SECRET_VALUE not in stored(world)
    assert b"plain again" in stored(world)


async def test_a_log_that_begins_again_is_sealed_from_its_first_record(
    mock_clock: MockClock,
) -> None:
    world = world_with_key(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic = await create_encrypted(world, client)
        assert broker._partitions is not None
        partition = broker._partitions.find(topic, 0)
        # The topic was in the clear when a thread began to make the new log.
        partition.log.cipher = None
        await broker._partitions.restart(partition, 7)

        await produce(client, topic, batch_of(SECRET_VALUE))

    assert SECRET_VALUE not in stored(world)


async def test_large_fetches_are_opened_in_parts(mock_clock: MockClock) -> None:
    world = world_with_key(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_encrypted(world, client)
        for number in range(12):
            await produce(client, topic, batch_of(bytes([number]) * 900_000))

        result = await fetch(client, topic, max_bytes=64 << 20, max_partition_bytes=64 << 20)

        assert 1 < len(result.records) < 6
        assert len(await fetch_all(client, topic)) == 12


async def test_unread_replies_of_encrypted_topics_cost_little_memory(
    mock_clock: MockClock,
) -> None:
    world = world_with_key(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_encrypted(world, client)
        for _ in range(20):
            await produce(client, topic, batch_of(bytes(20_000)))
        deaf = await world.raw_client()
        await deaf.introduce()
        deaf.stream.set_receive_buffer(0)
        request = FetchRequest(1000, 1 << 40, 1 << 30, [PartitionFetch(topic, 0, 0, 1 << 20)])
        for _ in range(200):
            await deaf.send(deaf.request(api.FETCH, request))
        await settle()

        with at_most_allocated(16 << 20):  # Of 80 MB.
            await world.pass_time(2)

        deaf.stream.close()


async def test_records_are_found_by_time(mock_clock: MockClock) -> None:
    world = world_with_key(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_encrypted(world, client)
        columns = Columns(3, values=[b"a", b"b", b"c"], timestamp_deltas=[0, 50, 100])
        await produce(client, topic, encode_batch(columns, first_timestamp_ms=START_MS))

        assert (await list_offset(client, topic, START_MS + 40)).offset == 1


@pytest.mark.parametrize("text", ["", key_file(OTHER_MASTER)])
async def test_a_restart_with_a_wrong_or_missing_key_loses_nothing(
    mock_clock: MockClock, text: str
) -> None:
    world = world_with_key(mock_clock)
    async with world.doomed_broker(), world.client() as client:
        topic = await create_encrypted(world, client)
        await produce(client, topic, batch_of(SECRET_VALUE))
        await create_topic(client, "plain")
    world = world.after_crash()
    before = world.segments()
    world.key_file = text
    async with world.broker(), world.client() as client:
        with pytest.raises(KeyUnavailableError, match="master key"):
            await fetch(client, topic)
        with pytest.raises(KeyUnavailableError, match="master key"):
            await produce(client, topic, batch_of(b"b"))
        (told,) = world.told("data_keys_unavailable")
        assert told["topics"] == ["orders"]
        (own,) = (await list_keys(client)).brokers
        assert own.locked_topics == ["orders"]
        locked = await read_metrics(client, "locked")
        assert set(locked.values()) == {1}
        assert len(locked) == 2
        assert "master key" in own.reason
        assert not world.told("log_damaged")
        assert not world.told("log_status_changed")
        assert [data for path, data in world.segments() if "orders" in path] == [
            data for path, data in before if "orders" in path
        ]

        world.key_file = key_file(MASTER)
        await world.pass_time(6)

        assert world.told("data_keys_available")
        assert set((await read_metrics(client, "locked")).values()) == {0}
        assert (await fetch(client, topic)).values == [SECRET_VALUE]
        await produce(client, topic, batch_of(b"b"))
    async with world.broker(), world.client() as client:
        assert [each.value for each in await fetch_all(client, topic)] == [SECRET_VALUE, b"b"]


async def test_an_unreadable_key_file_keeps_the_keys_in_use(mock_clock: MockClock) -> None:
    world = world_with_key(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_encrypted(world, client)
        await produce(client, topic, batch_of(b"a"))

        for text in ("half a fi", ""):
            world.key_file = text
            await world.pass_time(30)

            assert (await fetch(client, topic)).values == [b"a"]
        assert len(world.told("master_keys_unreadable")) == 2
        assert not world.told("data_keys_unavailable")


async def test_a_topic_without_a_master_key_accepts_no_record_in_the_clear(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_encrypted(world, client)
        with pytest.raises(KeyUnavailableError, match="set master_key_file"):
            await produce(client, topic, batch_of(SECRET_VALUE))
    assert SECRET_VALUE not in stored(world)


async def test_data_keys_are_rotated_by_age_and_by_command(mock_clock: MockClock) -> None:
    world = world_with_key(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_encrypted(world, client, data_key_rotation_ms="1h")
        await produce(client, topic, batch_of(b"a"))
        await world.pass_time(3601)
        await world.pass_time(6)
        await produce(client, topic, batch_of(b"b"))
        changed = await alter_keys(client, KeyAction.ROTATE)
        await produce(client, topic, batch_of(b"c"))

        (described,) = (await list_keys(client)).topics

        assert [each.key_id for each in described.keys] == [1, 2, 3]
        assert changed.topics[0].key_ids == [3]
        assert [each.value for each in await fetch_all(client, topic)] == [b"a", b"b", b"c"]


async def test_shredded_records_are_gone_and_later_ones_are_there(mock_clock: MockClock) -> None:
    world = world_with_key(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_encrypted(world, client)
        await produce(client, topic, batch_of(b"a", b"b"))
        await produce(client, topic, batch_of(b"c"))

        changed = await alter_keys(client, KeyAction.SHRED)
        await produce(client, topic, batch_of(b"d"))

        assert changed.topics[0].key_ids == [1]
        assert await fetch_all(client, topic) == [(3, b"d")]
        with pytest.raises(InvalidRequestError, match="data key 2 is in use"):
            await alter_keys(client, KeyAction.SHRED, 2)
    async with world.broker(), world.client() as client:
        assert await fetch_all(client, topic) == [(3, b"d")]
        assert not world.told("log_damaged")


async def test_master_keys_are_replaced_without_a_restart(mock_clock: MockClock) -> None:
    world = world_with_key(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_encrypted(world, client)
        await produce(client, topic, batch_of(b"a"))

        world.key_file = key_file(OTHER_MASTER, MASTER)
        changed = await alter_keys(client, KeyAction.REWRAP)
        world.key_file = key_file(OTHER_MASTER)
        await world.pass_time(6)

        assert changed.topics[0].key_ids == [1]
        assert (await fetch(client, topic)).values == [b"a"]
        assert not world.told("data_keys_unavailable")


async def test_a_compacted_topic_stays_sealed(mock_clock: MockClock) -> None:
    world = world_with_key(mock_clock)
    settings = {
        "cleanup_policy": "compact",
        "segment_bytes": "4KiB",
        "index_interval_bytes": "1KiB",
        "min_cleanable_dirty_ratio": "0.01",
    }
    async with world.broker(), world.client() as client:
        topic = await create_encrypted(world, client, **settings)
        for number in range(120):
            columns = Columns(
                2,
                keys=[b"key", b"other-%d" % number],
                values=[b"value %d" % number, SECRET_VALUE],
            )
            await produce(client, topic, encode_batch(columns, first_timestamp_ms=START_MS))
        for _ in range(60):
            await world.pass_time(6)

        assert world.told("log_compacted")
        records = await fetch_all(client, topic)

        assert sum(record.value == SECRET_VALUE for record in records) == 120
        assert len(records) < 180
        assert records[-2].value == b"value 119"
    assert SECRET_VALUE not in stored(world)
    assert b"value 119" not in stored(world)


async def test_compaction_keeps_the_data_key_of_what_it_rewrites(mock_clock: MockClock) -> None:
    world = world_with_key(mock_clock)
    settings = {
        "cleanup_policy": "compact",
        "segment_bytes": "4KiB",
        "index_interval_bytes": "1KiB",
        "min_cleanable_dirty_ratio": "0.01",
    }
    async with world.broker(), world.client() as client:
        topic = await create_encrypted(world, client, **settings)
        for number in range(120):
            columns = Columns(
                2, keys=[b"key", b"other-%d" % number], values=[b"value", SECRET_VALUE]
            )
            await produce(client, topic, encode_batch(columns, first_timestamp_ms=START_MS))
        await alter_keys(client, KeyAction.ROTATE)
        for _ in range(60):
            await world.pass_time(6)
        assert world.told("log_compacted")
        await produce(client, topic, batch_of(b"later"))

        await alter_keys(client, KeyAction.SHRED, 1)

        assert [record.value for record in await fetch_all(client, topic)] == [b"later"]


async def test_compaction_removes_shredded_records(mock_clock: MockClock) -> None:
    world = world_with_key(mock_clock)
    settings = {
        "cleanup_policy": "compact",
        "segment_bytes": "4KiB",
        "index_interval_bytes": "1KiB",
        "min_cleanable_dirty_ratio": "0.01",
    }
    async with world.broker() as broker, world.client() as client:
        topic = await create_encrypted(world, client, **settings)
        for number in range(100):
            columns = Columns(1, keys=[b"%d" % number], values=[SECRET_VALUE])
            await produce(client, topic, encode_batch(columns, first_timestamp_ms=START_MS))
        await alter_keys(client, KeyAction.SHRED)
        before = sum(len(data) for _, data in world.segments())
        for _ in range(60):
            await world.pass_time(6)

        assert broker.statistics().compaction.rounds_ended
        assert sum(len(data) for _, data in world.segments()) < before / 2
        assert await fetch_all(client, topic) == []
