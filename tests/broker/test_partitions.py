"""Tests of opening, making and removing the logs of topics."""

import pytest
from trio.testing import MockClock

from broker.data_directory import open_data_directory
from broker.partitions import Partitions
from coordinator.catalog import Catalog, CreateTopic, DeleteTopic, Topic
from logstore.file_cache import FileCache
from tests.broker.logs import TOPIC_ID, append, flush
from tests.broker.world import World
from tests.simulation.disk_contents import contents
from wire.errors import UnknownPartitionError, UnknownTopicIdError


def new_partitions(world: World) -> Partitions:
    directory = open_data_directory(world.disk, node_id=1, cluster_id="c", disk_id="d")
    directory.release()
    return Partitions(world.env, directory, FileCache(world.disk))


def catalog_of(*names: str, partition_count: int = 2) -> Catalog:
    catalog = Catalog()
    for number, name in enumerate(names):
        topic_id = bytes([number]) * 16
        for record in catalog.handle(CreateTopic(name, topic_id, partition_count, {})):
            catalog.apply(record)
    return catalog


def topic_of(catalog: Catalog, name: str = "orders") -> Topic:
    return catalog.topic(name)


async def test_partitions_of_a_topic_are_open_or_unknown_together(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    partitions, topic = new_partitions(world), topic_of(catalog_of("orders"))
    assert partitions.of_topic(topic.topic_id) is None

    await partitions.create(topic)

    opened = partitions.of_topic(topic.topic_id)
    assert opened is not None
    assert [partition.number for partition in opened] == [0, 1]
    assert partitions.all() == opened
    assert partitions.find(topic.topic_id, 1) is opened[1]
    with pytest.raises(UnknownPartitionError, match="the topic has partitions 0 to 1"):
        partitions.find(topic.topic_id, 2)
    with pytest.raises(UnknownTopicIdError, match=TOPIC_ID.hex()):
        partitions.find(TOPIC_ID, 0)


async def test_a_topic_that_cannot_be_made_leaves_none_of_its_partitions_open(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    partitions, topic = new_partitions(world), topic_of(catalog_of("orders"))
    world.disk.fail("create", nth=2)

    with pytest.raises(OSError, match="Input/output error"):
        await partitions.create(topic)

    assert partitions.all() == []
    await partitions.create(topic)
    assert len(partitions.all()) == 2


async def test_closing_a_topic_ends_its_logs_and_removing_its_files_leaves_nothing(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    partitions, catalog = new_partitions(world), catalog_of("orders", "other")
    topic, other = topic_of(catalog), topic_of(catalog, "other")
    await partitions.create(topic)
    await partitions.create(other)
    before = set(contents(world.disk))

    closed = partitions.close(topic)
    await partitions.remove_files(topic)

    assert [partition.log.status.value for partition in closed] == ["offline", "offline"]
    assert partitions.close(topic) == []
    assert len(partitions.all()) == 2
    gone = before - set(contents(world.disk))
    assert gone
    assert all(topic.topic_id.hex() in path for path in gone)


async def test_at_a_start_logs_are_opened_and_deleted_topics_removed(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    partitions, catalog = new_partitions(world), catalog_of("orders", "gone")
    for name in ("orders", "gone"):
        await partitions.create(topic_of(catalog, name))
    log = partitions.find(topic_of(catalog).topic_id, 1).log
    append(log, b"a")
    flush(log)
    for record in catalog.handle(DeleteTopic("gone")):
        catalog.apply(record)

    again = new_partitions(world)
    await again.open_all(catalog)

    assert [partition.high_watermark for partition in again.all()] == [0, 1]
    assert len(world.disk.list_directory("topics")) == 1
    assert not world.disk.exists("deleted")


async def test_topics_whose_logs_were_never_made_are_made_at_a_start(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    partitions, catalog = new_partitions(world), catalog_of("orders")

    await partitions.open_all(catalog)

    log = partitions.find(topic_of(catalog).topic_id, 0).log
    append(log, b"a")
    flush(log)
    after = world.after_power_cut(3)
    again = new_partitions(after)
    await again.open_all(catalog)
    assert again.find(topic_of(catalog).topic_id, 0).high_watermark == 1


async def test_opening_many_logs_shows_progress(mock_clock: MockClock) -> None:
    world = World(mock_clock)

    await new_partitions(world).open_all(catalog_of("a", "b", partition_count=150))

    assert world.told("opening_logs") == [
        {"opened": opened, "total": 300} for opened in (100, 200, 300)
    ]


async def test_what_recovery_found_is_told(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    partitions, catalog = new_partitions(world), catalog_of("orders", partition_count=1)
    await partitions.open_all(catalog)
    log = partitions.find(topic_of(catalog).topic_id, 0).log
    for value in (b"first", b"second", b"third"):
        append(log, value)
        flush(log)
    append(log, b"torn")
    ((path, data),) = world.segments()
    world.disk.flip_bit(path, data.index(b"second"), 0)
    size = len(data)
    world.disk.cut_file(path, size - 2)

    after = world.after_crash()
    again = new_partitions(after)
    await again.open_all(catalog)

    (recovered,) = after.told("log_recovered")
    assert (recovered["topic"], recovered["partition"]) == ("orders", 0)
    assert int(str(recovered["truncated_bytes"])) > 0
    (damaged,) = after.told("log_damaged")
    assert (damaged["offset"], damaged["end_offset"]) == (1, 2)
    assert again.find(topic_of(catalog).topic_id, 0).log.status.value == "damaged"
