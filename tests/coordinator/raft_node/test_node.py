"""Raft nodes on real storage and real links, under faults."""

# Reads the state of a core.
# pyright: reportPrivateUsage=false

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import pytest
import trio

from tests.coordinator.raft_clients import Client, FaultInjector, until
from tests.coordinator.raft_nodes import Host, decoded_of, hosts, lists, values_of, watch_roles
from tests.simulation.machine.world import Simulation, World
from tidelog.coordinator.raft.errors import ProposalRefusedError
from tidelog.coordinator.raft.ready import AddLearner, Promote, Remove
from tidelog.coordinator.raft_node import node as raft_node
from tidelog.coordinator.raft_node.pending_proposals import LostProposalError
from tidelog.wire.errors import LogOfflineError, NotLeaderError

PATIENCE_S = 30.0


def play(story: Callable[[World], Awaitable[None]], *, seed: int = 1) -> None:
    """Run a scenario; it must end."""

    async def main(world: World) -> None:
        watch_roles(world)
        with trio.fail_after(600):
            await story(world)

    Simulation(seed).run(main)


async def leader_of(group: list[Host]) -> Host:
    """Return the leading host, when all running hosts know it."""
    found: list[Host] = []

    def is_agreed() -> bool:
        up = [host for host in group if host.raft is not None]
        leaders = [host for host in up if host.raft is not None and host.raft.is_leader]
        found[:] = leaders
        return len(leaders) == 1 and all(
            host.raft is not None and host.raft.leader_id == leaders[0].node_id for host in up
        )

    await until(is_agreed)
    return found[0]


async def propose(host: Host, value: bytes) -> int:
    assert host.raft is not None
    with trio.fail_after(PATIENCE_S):
        return await host.raft.propose(value)


def has_applied(host: Host, value: bytes) -> bool:
    return value in values_of(host).values()


async def commit(group: list[Host], value: bytes) -> Host:
    """Commit a value through the leader; return its host."""
    with trio.fail_after(PATIENCE_S):
        while True:
            leader = await leader_of(group)
            with suppress(ProposalRefusedError, LostProposalError), trio.move_on_after(3):
                await propose(leader, value)
                return leader


def started(world: World, count: int) -> list[Host]:
    group = hosts(world, count, lists())
    for host in group:
        host.start()
    return group


def test_a_single_node_commits_without_other_nodes() -> None:
    async def story(world: World) -> None:
        (host,) = started(world, 1)
        await until(lambda: host.raft is not None and host.raft.is_leader, 0.2)

        await propose(host, b"first")

        assert list(values_of(host).values()) == [b"first"]

    play(story)


def test_committed_entries_are_applied_on_all_nodes() -> None:
    async def story(world: World) -> None:
        group = started(world, 3)
        leader = await leader_of(group)

        for number in range(20):
            await propose(leader, b"%d" % number)

        await until(lambda: all(values_of(host) == values_of(leader) for host in group))
        assert list(values_of(leader).values()) == [b"%d" % number for number in range(20)]

    play(story)


def test_a_new_leader_has_all_committed_entries_of_a_dead_one() -> None:
    async def story(world: World) -> None:
        group = started(world, 3)
        leader = await leader_of(group)
        await propose(leader, b"before")

        leader.cut_power()
        next_leader = await leader_of([host for host in group if host is not leader])
        await propose(next_leader, b"after")
        leader.start()

        await until(lambda: list(values_of(leader).values()) == [b"before", b"after"])

    play(story)


def test_a_power_cut_of_all_nodes_loses_no_committed_entry() -> None:
    async def story(world: World) -> None:
        group = started(world, 3)
        leader = await leader_of(group)
        await propose(leader, b"kept")

        for host in group:
            host.cut_power()
        for host in group:
            host.start()

        await until(lambda: all(list(values_of(host).values()) == [b"kept"] for host in group))

    play(story)


def test_a_follower_refuses_proposals_and_reads() -> None:
    async def story(world: World) -> None:
        group = started(world, 3)
        leader = await leader_of(group)
        follower = next(host for host in group if host is not leader)
        assert follower.raft is not None

        with pytest.raises(ProposalRefusedError, match=f"ask node {leader.node_id}"):
            await follower.raft.propose(b"no")
        with pytest.raises(NotLeaderError, match=f"ask node {leader.node_id}"):
            await follower.raft.wait_current()

    play(story)


def test_a_read_on_the_leader_sees_all_that_was_committed() -> None:
    async def story(world: World) -> None:
        group = started(world, 3)
        leader = await leader_of(group)
        assert leader.raft is not None
        index = await propose(leader, b"seen")

        await leader.raft.wait_current()

        assert leader.raft.applied_index >= index

    play(story)


def test_a_cancelled_read_is_no_defect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(world: World) -> None:
        group = started(world, 3)
        leader = await leader_of(group)
        assert leader.raft is not None
        await propose(leader, b"before")

        with trio.CancelScope() as waiting:
            waiting.cancel()
            await leader.raft.wait_current()
        await trio.sleep(1)

        assert waiting.cancelled_caught
        assert caplog.records == []

    play(story)


def test_a_leader_that_is_cut_off_serves_no_reads() -> None:
    async def story(world: World) -> None:
        group = started(world, 3)
        leader = await leader_of(group)
        raft = leader.raft
        assert raft is not None
        others = [host.machine.name for host in group if host is not leader]
        world.network.partition([leader.machine.name], others)

        with pytest.raises(NotLeaderError), trio.fail_after(PATIENCE_S):
            await raft.wait_current()

    play(story)


def test_a_proposal_of_a_deposed_leader_is_reported_lost() -> None:
    async def story(world: World) -> None:
        group = started(world, 3)
        old = await leader_of(group)
        assert old.raft is not None
        others = [host for host in group if host is not old]
        heal = world.network.partition([old.machine.name], [host.machine.name for host in others])
        waiting = old.raft.propose_nowait(b"lost", "lost")
        new = await leader_of(others)
        await propose(new, b"kept")
        heal()

        with pytest.raises(LostProposalError), trio.fail_after(PATIENCE_S):
            await waiting.wait()

        await until(lambda: list(values_of(old).values()) == [b"kept"])
        assert not decoded_of(old), "the decoded form of another entry"

    play(story)


def test_a_proposing_node_applies_its_command_without_decoding() -> None:
    async def story(world: World) -> None:
        group = started(world, 3)
        leader = await leader_of(group)
        assert leader.raft is not None
        entry = {"decoded": "already"}

        index = await leader.raft.propose_nowait(b"encoded", entry).wait()

        assert decoded_of(leader)[index] is entry
        await until(lambda: all(index in values_of(host) for host in group))
        assert not any(decoded_of(host) for host in group if host is not leader)

    play(story)


def test_a_node_behind_the_compacted_log_gets_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raft_node, "SNAPSHOT_AFTER_BYTES", 2000)
    monkeypatch.setattr(raft_node, "KEPT_ENTRIES", 5)

    async def story(world: World) -> None:
        group = started(world, 3)
        leader = await leader_of(group)
        away = next(host for host in group if host is not leader)
        away.kill()
        for number in range(100):
            await propose(leader, b"%d" % number)

        away.start()

        await until(lambda: values_of(away) == values_of(leader))
        away.cut_power()
        away.start()
        await propose(leader, b"one more")
        await until(lambda: values_of(away) == values_of(leader))

    play(story)


def test_a_cluster_grows_and_a_node_is_replaced() -> None:
    async def story(world: World) -> None:
        group = hosts(world, 4, lists(), voter_count=1)
        for host in group:
            host.start()
        first = group[0]
        await propose(await leader_of([first]), b"alone")
        assert first.raft is not None

        for host in group[1:3]:
            await first.raft.change_membership(AddLearner(host.identity))
            await until(partial(has_applied, host, b"alone"))
            await first.raft.change_membership(Promote(host.node_id))
        group[1].cut_power()
        await first.raft.change_membership(AddLearner(group[3].identity))
        await until(lambda: b"alone" in values_of(group[3]).values())
        await first.raft.change_membership(Promote(4))
        await first.raft.change_membership(Remove(2))
        await propose(first, b"with three")

        first.cut_power()
        survivor = await leader_of([group[2], group[3]])
        await propose(survivor, b"with two of three")
        assert list(values_of(survivor).values()) == [
            b"alone",
            b"with three",
            b"with two of three",
        ]

    play(story)


def test_a_leadership_transfer_needs_no_election_timeout() -> None:
    async def story(world: World) -> None:
        group = started(world, 3)
        leader = await leader_of(group)
        assert leader.raft is not None
        target = next(host for host in group if host is not leader)

        leader.raft.transfer_leadership(target.node_id)

        await until(lambda: target.raft is not None and target.raft.is_leader, 0.5)

    play(story)


def test_a_node_with_a_failed_disk_goes_silent_and_the_others_continue() -> None:
    async def story(world: World) -> None:
        group = started(world, 3)
        leader = await leader_of(group)
        leader.machine.disk.fail("sync")
        assert leader.raft is not None

        with pytest.raises(LogOfflineError):
            await leader.raft.propose(b"never promised by it")

        others = [host for host in group if host is not leader]
        await propose(await leader_of(others), b"goes on")

    play(story)


def test_a_read_waits_until_committed_entries_are_applied_locally() -> None:
    async def story(world: World) -> None:
        group = started(world, 3)
        leader = await leader_of(group)
        assert leader.raft is not None
        leader.machine.stall_disk(0.5)
        leader.raft.propose_nowait(b"committed by the others")
        core = leader.raft._core
        await until(lambda: core.commit_index > leader_index(leader))

        await leader.raft.wait_current()

        assert b"committed by the others" in values_of(leader).values()

    def leader_index(leader: Host) -> int:
        assert leader.raft is not None
        return leader.raft.applied_index

    play(story)


def test_a_full_disk_delays_and_loses_nothing() -> None:
    async def story(world: World) -> None:
        group = started(world, 1)
        leader = await leader_of(group)
        assert leader.raft is not None
        disk = leader.machine.disk
        disk.capacity_bytes = 0
        waiting = leader.raft.propose_nowait(b"when there is room")
        await trio.sleep(2.5)
        assert not values_of(leader)

        disk.capacity_bytes = None

        with trio.fail_after(5):
            await waiting.wait()

    play(story)


@pytest.mark.parametrize("seed", range(3))
def test_raft_nodes_agree_under_random_faults(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raft_node, "SNAPSHOT_AFTER_BYTES", 3000)
    monkeypatch.setattr(raft_node, "KEPT_ENTRIES", 10)

    async def story(world: World) -> None:
        random = world.streams.stream("story")
        group = started(world, random.choice([3, 5]))
        clients = [Client(group, number, random) for number in range(3)]
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(client.run)
            await FaultInjector(world, group, random).run(20)
            leader = await commit(group, b"the last")
            nursery.cancel_scope.cancel()
        await until(lambda: all(values_of(host) == values_of(leader) for host in group))
        acknowledged = {index: each for client in clients for index, each in client.done.items()}
        assert len(acknowledged) > 20
        assert acknowledged.items() <= values_of(leader).items()

    play(story, seed=seed)
