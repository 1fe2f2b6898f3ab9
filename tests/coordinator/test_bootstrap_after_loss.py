"""Starts of a node with damaged or lost metadata."""

from random import Random

import msgspec
import pytest
from trio.testing import MockClock

from tests.broker.world import World, settle
from tests.coordinator.node_starts import (
    ALONE,
    LOG,
    THEIRS,
    THREE,
    Addresses,
    Opened,
    at_work,
    crash_at,
    member,
    peers,
    refusal,
    start,
)
from tests.simulation.machine.faulty_disk import StaleHandleError
from tidelog.coordinator.bootstrap.open_node import ALONE_HELP, METADATA_DIRECTORY, RESTORE_HELP
from tidelog.coordinator.raft.membership import Identity
from tidelog.coordinator.raft.messages import AppendRequest, Entry, EntryId, EntryKind
from tidelog.coordinator.raft_node.storage import CONFIG, OWNER, is_founded
from tidelog.logstore.checkpoint import write_small_file
from tidelog.logstore.recovery.recovery import open_log
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.wire.batch.record_batch import Columns, encode_batch, parse_header
from tidelog.wire.messages.cluster import Peer, PeerStatusReply


def damage(world: World) -> World:
    """Return the world with a bit of the metadata's log flipped."""
    world = world.after_crash()
    world.disk.flip_bit(LOG, 64 + 40, 3)
    return world


async def a_node_with_entries(world: World, addresses: Addresses = ALONE) -> Opened:
    """Return a cluster of one that has stopped cleanly."""
    opened = await start(world, addresses)
    async with at_work(world, opened.found) as node:
        await node.raft.propose(b"\x90")
    await opened.found.node.aclose()
    return opened


async def test_without_peers_damaged_metadata_is_refused_and_left_unchanged(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    await a_node_with_entries(world)
    world = damage(world)

    for _ in range(2):
        reason = await refusal(world)

        assert "metadata is damaged: stored records 0 to 1 (exclusive)" in reason
        assert reason.endswith(f"; {ALONE_HELP}")
    assert is_founded(world.disk, METADATA_DIRECTORY)


async def member_of_theirs(world: World) -> Opened:
    """Return a node that has joined a cluster, and has voted and stored something there."""
    statuses = {2: member(2, THEIRS, Peer(2, b"disk of 2"))}
    async with peers(world, statuses):
        opened = await start(world, THREE)
    log, _ = open_log(METADATA_DIRECTORY, OWNER, FileCache(world.disk), config=CONFIG, now_ms=0)
    batch = memoryview(encode_batch(Columns(1, values=[b"\x00\x90"]), first_timestamp_ms=0))
    header = parse_header(batch)
    assert header is not None
    log.append(batch, header, leader_epoch=1, now_ms=0)
    log.request_checkpoint()
    flush = log.begin_flush()
    assert flush is not None
    flush.run()
    log.end_flush(flush)
    log.close()
    return opened


async def test_with_peers_a_node_with_damaged_metadata_takes_a_new_identity(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    before = await member_of_theirs(world)
    world = damage(world)

    async with peers(world, {2: member(2), 3: member(3)}):
        found, directory, answers = await start(world, THREE)

    assert directory.peer != before.directory.peer
    assert directory.identity.disk_id == before.directory.identity.disk_id, "the logs are there"
    assert found.status.peer == directory.peer
    assert answers == [PeerStatusReply(directory.peer, [1, 2, 3], None, [])]
    assert found.node.cluster_id == THEIRS
    assert found.node.membership.members == ()
    (told,) = world.told("metadata_damaged")
    assert "metadata is damaged: stored records 0 to 1" in str(told["reason"])
    assert world.disk.exists(f"metadata.damaged/{0:020d}.log")


async def test_new_metadata_is_not_written_to_the_damaged_files(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    await member_of_theirs(world)
    world = damage(world)
    async with peers(world, {2: member(2), 3: member(3)}):
        opened = await start(world, THREE)
    damaged = f"metadata.damaged/{0:020d}.log"
    kept = world.disk.open(damaged).read_at(0, 1 << 20)

    async with at_work(world, opened.found) as node:
        leader, me = Identity(2, b"disk of 2"), node.raft.identity
        entries = (Entry(1, 1, EntryKind.COMMAND, b"\x90"),)
        append = AppendRequest(leader, me, 1, EntryId(0, 0), 1, 0, 0, entries)
        node.raft.received(append)
        await settle()
        assert node.raft.applied_index == 1

    assert world.disk.open(damaged).read_at(0, 1 << 20) == kept
    after = world.after_power_cut(1)
    async with peers(after, {2: member(2), 3: member(3)}):
        opened = await start(after, THREE)
    async with at_work(after, opened.found) as node:
        append = AppendRequest(leader, me, 1, EntryId(1, 1), 1, 0, 0, ())
        node.raft.received(append)
        await settle()
        assert node.raft.applied_index == 1


async def test_a_crash_while_damaged_metadata_is_set_aside_loses_no_vote(
    mock_clock: MockClock,
) -> None:
    call_count, is_over = 0, False
    while not is_over:
        world = World(mock_clock)
        before = await member_of_theirs(world)
        world = damage(world)
        async with peers(world, {2: member(2), 3: member(3)}):
            crash_at(world.disk, call_count)
            try:
                await start(world, THREE)
            except StaleHandleError:
                pass
            else:
                is_over = True
        after = world.after_power_cut(call_count)
        async with peers(after, {2: member(2), 3: member(3)}):
            found, directory, _ = await start(after, THREE)
        assert found.status.peer == directory.peer != before.directory.peer
        assert found.node.cluster_id == directory.cluster_id == THEIRS
        call_count += 1
    assert call_count > 20


async def test_repeated_damage_is_set_aside_again(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    identities = [(await member_of_theirs(world)).directory.peer]
    for _ in range(2):
        world = world.after_crash()
        world.disk.flip_bit(f"{METADATA_DIRECTORY}/vote", 12, 1)
        async with peers(world, {2: member(2), 3: member(3)}):
            identities.append((await start(world, THREE)).directory.peer)

    assert len({peer.disk_id for peer in identities}) == 3


def lose_metadata(world: World) -> World:
    """Return the world without the directory of the metadata."""
    world = world.after_crash()
    world.disk.remove_directory(METADATA_DIRECTORY)
    world.disk.sync_directory("")
    return world


async def test_without_peers_lost_metadata_is_not_recreated(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    opened = await a_node_with_entries(world)
    world = lose_metadata(world)

    reason = await refusal(world)

    assert reason == (
        f"/faulty/metadata has lost the metadata of cluster {opened.directory.cluster_id};"
        f" {ALONE_HELP}"
    )


async def test_with_peers_a_node_with_lost_metadata_takes_a_new_identity(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    before = await member_of_theirs(world)
    world = lose_metadata(world)

    # Even if its old identity is one of the first voters.
    async with peers(world, {2: member(2, THEIRS, before.directory.peer)}):
        found, directory, answers = await start(world, THREE)

    assert directory.peer != before.directory.peer
    assert found.status.peer == directory.peer
    assert [answer.peer for answer in answers] == [directory.peer]
    assert found.node.membership.members == ()
    assert found.node.cluster_id == THEIRS


async def test_a_node_with_lost_metadata_forms_no_second_cluster(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    await member_of_theirs(world)
    world = lose_metadata(world)

    async with peers(world, {2: member(2, None), 3: member(3, None)}):
        reason = await refusal(world, THREE)

    assert reason == (
        "/faulty/metadata has lost the metadata of cluster their cluster, and none of the peers"
        " belongs to it; name nodes of that cluster with --peers"
    )
    assert not is_founded(world.disk, METADATA_DIRECTORY)


async def test_peers_of_another_cluster_are_refused(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    await member_of_theirs(world)
    world = lose_metadata(world)

    async with peers(world, {2: member(2, "yet another")}):
        reason = await refusal(world, THREE)

    assert reason == (
        "/faulty belongs to cluster their cluster, node 2 to cluster yet another; name nodes of the"
        " same cluster with --peers"
    )
    assert not is_founded(world.disk, METADATA_DIRECTORY)


async def test_metadata_of_another_cluster_than_the_logs_is_refused(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    opened = await a_node_with_entries(world)
    identity = msgspec.structs.replace(opened.directory.identity, cluster_id="another")
    write_small_file(world.disk, "node", identity)

    reason = await refusal(world)

    assert reason == (
        "/faulty belongs to cluster another, its metadata to cluster"
        f" {opened.directory.cluster_id}; {RESTORE_HELP}"
    )


async def test_a_failed_disk_is_not_treated_as_lost_metadata(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    first = await member_of_theirs(world)
    world = world.after_crash()
    world.disk.fail("read_at", path=f"{METADATA_DIRECTORY}/vote")

    with pytest.raises(OSError, match="Input/output error"):
        await start(world, THREE)

    async with peers(world, {2: member(2), 3: member(3)}):
        again = await start(world, THREE)
    assert again.directory.peer == first.directory.peer


@pytest.mark.parametrize("seed", range(4))
async def test_a_start_truncates_a_torn_tail_of_the_metadata(
    mock_clock: MockClock, seed: int
) -> None:
    world = World(mock_clock)
    opened = await start(world)
    async with at_work(world, opened.found) as node:
        await node.raft.propose(b"\x90")
        applied = node.raft.applied_index
    world = world.after_crash()
    size = world.disk.open(LOG).size()
    world.disk.cut_file(LOG, size - Random(seed).randrange(1, 20))

    again = await start(world)

    assert again.found.status == opened.found.status
    async with at_work(world, again.found) as node:
        assert node.raft.applied_index >= applied
