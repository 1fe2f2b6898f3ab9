"""Starts from any data directory: the right node, or the reason of the refusal."""

import msgspec
import pytest
from trio.testing import MockClock

from tests.broker.world import World
from tests.cluster_secret import dialer_of
from tests.coordinator.node_starts import (
    ALONE,
    THEIRS,
    THREE,
    Addresses,
    at_work,
    crash_at,
    member,
    peers,
    start,
)
from tests.simulation.machine.faulty_disk import FaultyDisk, StaleHandleError
from tidelog.broker.partitions.data_directory import DiskIds, open_data_directory
from tidelog.coordinator.bootstrap.open_node import METADATA_DIRECTORY, open_node
from tidelog.coordinator.metadata.catalog import TopicCreated
from tidelog.coordinator.raft_node.storage import CONFIG, OWNER
from tidelog.logstore.checkpoint import write_small_file
from tidelog.logstore.recovery.recovery import open_log
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.wire.batch.record_batch import Columns, encode_batch, parse_header
from tidelog.wire.messages.cluster import Peer, PeerStatusReply


async def test_a_single_node_forms_its_own_cluster(mock_clock: MockClock) -> None:
    world = World(mock_clock)

    found, directory, answers = await start(world)

    assert found.node.is_only_voter
    assert found.node.cluster_id == directory.cluster_id == found.status.cluster_id
    assert found.node.cluster_id
    assert found.status == PeerStatusReply(
        directory.peer, [1], directory.cluster_id, [directory.peer]
    )
    assert answers == [], "no peer asks"
    async with at_work(world, found) as node:
        assert node.raft.is_active_leader


@pytest.mark.parametrize("seed", range(4))
async def test_the_next_start_finds_the_same_node(mock_clock: MockClock, seed: int) -> None:
    world = World(mock_clock)
    first = await start(world)

    again = await start(world.after_power_cut(seed))

    assert again.found.status == first.found.status
    assert again.directory.identity == first.directory.identity


async def test_two_single_nodes_have_different_clusters(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    one = await start(world)
    world.disk = FaultyDisk()
    other = await start(world)

    assert one.found.node.cluster_id != other.found.node.cluster_id
    assert one.directory.peer != other.directory.peer


async def test_a_crash_during_cluster_formation_can_be_repeated(
    mock_clock: MockClock,
) -> None:
    call_count, is_over = 0, False
    while not is_over:
        world = World(mock_clock)
        crash_at(world.disk, call_count)
        try:
            await start(world)
        except StaleHandleError:
            pass
        else:
            is_over = True
        for after in (world.after_crash(), *map(world.after_power_cut, range(3))):
            found, directory, _ = await start(after)
            again = await start(after.after_power_cut(0))

            assert found.node.is_only_voter
            assert again.found.status == found.status
            assert again.directory.cluster_id == directory.cluster_id
        call_count += 1
    assert call_count > 10


def write_old_directory(disk: FaultyDisk) -> None:
    """Write the directory of a version without clusters: a catalog with one topic."""
    write_small_file(disk, "node", [1, "its cluster", "d0"])
    log, _ = open_log(METADATA_DIRECTORY, OWNER, FileCache(disk), config=CONFIG, now_ms=0)
    record = msgspec.msgpack.encode(TopicCreated("orders", b"0123456789abcdef", 3, {}))
    batch = memoryview(encode_batch(Columns(1, values=[record]), first_timestamp_ms=0))
    header = parse_header(batch)
    assert header is not None
    log.append(batch, header, leader_epoch=0, now_ms=0)
    flush = log.begin_flush()
    assert flush is not None
    flush.run()
    disk.sync_directory("")


@pytest.mark.parametrize("addresses", [ALONE, THREE])
async def test_a_data_directory_of_a_version_without_clusters_keeps_its_topics(
    mock_clock: MockClock, addresses: Addresses
) -> None:
    world = World(mock_clock)
    write_old_directory(world.disk)

    found, directory, answers = await start(world, addresses)

    assert found.node.cluster_id == directory.cluster_id == "its cluster"
    assert found.node.is_only_voter, "it has its metadata without any peer"
    assert answers == []
    async with at_work(world, found) as node:
        assert [topic.name for topic in node.metadata.state.catalog.topics] == ["orders"]


async def test_a_crash_during_the_migration_of_an_old_directory_loses_no_topic(
    mock_clock: MockClock,
) -> None:
    call_count, is_over = 0, False
    while not is_over:
        world = World(mock_clock)
        write_old_directory(world.disk)
        crash_at(world.disk, call_count)
        try:
            await start(world)
        except StaleHandleError:
            pass
        else:
            is_over = True
        for after in (world.after_crash(), *map(world.after_power_cut, range(3))):
            found, directory, _ = await start(after)

            assert found.node.cluster_id == directory.cluster_id == "its cluster"
            async with at_work(after, found) as node:
                assert [topic.name for topic in node.metadata.state.catalog.topics] == ["orders"]
        call_count += 1
    assert call_count > 10


async def test_one_of_the_first_voters_joins_as_a_voter(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    told: list[PeerStatusReply] = []

    def formed_with_me() -> PeerStatusReply:
        return member(2, THEIRS, told[-1].peer, Peer(2, b"disk of 2"))()

    async with peers(world, {2: formed_with_me}):
        random = world.env.random
        disk_ids = DiskIds.draw(random)
        directory = open_data_directory(world.disk, node_id=1, disk_ids=disk_ids)
        found = await open_node(
            world.env,
            FileCache(world.disk),
            directory,
            dialer=dialer_of(world.env, 1),
            addresses=THREE,
            answer=told.append,
        )

    assert told == [PeerStatusReply(directory.peer, [1, 2, 3], None, [])]
    assert found.node.cluster_id == directory.cluster_id == THEIRS
    assert [voter.node_id for voter in found.node.membership.voters] == [1, 2]
    assert found.status.first_voters == [directory.peer, Peer(2, b"disk of 2")]


async def test_a_late_node_starts_without_known_members(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with peers(world, {2: member(2, THEIRS, Peer(2, b"disk of 2"))}):
        found, directory, _ = await start(world, THREE)

    assert found.node.cluster_id == directory.cluster_id == THEIRS
    assert found.node.membership.members == ()
    assert found.status.first_voters == []


async def test_the_first_peer_forms_a_cluster_with_its_peers(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with peers(world, {2: member(2, None), 3: member(3, None)}):
        found, directory, _ = await start(world, THREE)

    founders = [directory.peer, Peer(2, b"disk of 2"), Peer(3, b"disk of 3")]
    assert found.status == PeerStatusReply(
        directory.peer, [1, 2, 3], directory.cluster_id, founders
    )
    assert [voter.node_id for voter in found.node.membership.voters] == [1, 2, 3]


async def test_a_cluster_node_restarts_when_its_peers_answer(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with peers(world, {2: member(2, None), 3: member(3, None)}):
        first = await start(world, THREE)
    cluster_id = first.found.node.cluster_id

    after = world.after_power_cut(1)
    async with peers(after, {2: member(2, cluster_id), 3: member(3, cluster_id)}):
        again = await start(after, THREE)

    assert again.found.status == first.found.status
    assert again.answers == [first.found.status], "a peer that waits as well needs this answer"


async def test_a_cluster_node_that_knows_no_address_asks_no_node(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with peers(world, {2: member(2, None), 3: member(3, None)}):
        first = await start(world, THREE)

    again = await start(world.after_power_cut(1), ALONE)

    assert again.found.status.first_voters == first.found.status.first_voters
    assert again.found.node.cluster_id == first.found.node.cluster_id
    assert again.answers == []


async def test_a_crash_during_formation_or_join_ends_in_one_cluster(
    mock_clock: MockClock,
) -> None:
    for statuses in (
        {2: member(2, None), 3: member(3, None)},
        {2: member(2), 3: member(3)},
    ):
        call_count, is_over = 0, False
        while not is_over:
            world = World(mock_clock)
            async with peers(world, statuses):
                crash_at(world.disk, call_count)
                try:
                    before = (await start(world, THREE)).found.node.cluster_id
                except StaleHandleError:
                    before = None
                else:
                    is_over = True
            after = world.after_power_cut(call_count)
            async with peers(after, statuses):
                found, directory, _ = await start(after, THREE)
            assert before in (None, found.node.cluster_id)
            assert found.node.cluster_id == directory.cluster_id
            voters = found.node.membership.voters
            assert [voter.node_id for voter in voters] in ([1, 2, 3], [])
            call_count += 1
        assert call_count > 10
