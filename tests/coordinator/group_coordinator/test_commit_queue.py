"""The commit queue: many commits in one entry, and refusals of too many."""

import pytest
import trio

from tests.coordinator.controller.test_replicated_state import create
from tests.coordinator.group_cluster import GROUP, ORDERS, GroupCluster, play
from tests.coordinator.raft_clients import until
from tests.coordinator.raft_nodes import Host
from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.group_coordinator import commit_queue, leadership
from tidelog.coordinator.group_coordinator.coordinator import GroupCoordinator
from tidelog.coordinator.groups.commits import CommitResult
from tidelog.coordinator.raft_node.pending_proposals import PendingProposal
from tidelog.wire.errors import (
    InvalidRequestError,
    NotControllerError,
    OverloadedError,
    RequestTimedOutError,
)
from tidelog.wire.messages.groups import CommitOffsetsReply, CommitOffsetsRequest, PartitionCommit


def commit(offset: int, *, group: str = GROUP, metadata: str = "") -> CommitOffsetsRequest:
    return CommitOffsetsRequest(
        group, "", -1, offset, [PartitionCommit(ORDERS, 0, offset, None, metadata)]
    )


def ignore(result: CommitResult) -> None:
    """Ignore the result of a commit."""


async def coordinator_of(cluster: GroupCluster) -> tuple[Host, GroupCoordinator]:
    leader, _ = await cluster.leader_and_another()
    return leader, cluster.coordinators[leader.node_id]


def test_commits_during_a_pending_entry_become_one_entry() -> None:
    async def story(cluster: GroupCluster) -> None:
        leader, coordinator = await coordinator_of(cluster)
        assert leader.raft is not None
        replies: list[CommitOffsetsReply] = []

        async def store(number: int) -> None:
            replies.append(await coordinator.commit_offsets(commit(number, group=f"g{number % 7}")))

        before = leader.raft.applied_index
        async with trio.open_nursery() as nursery:
            for number in range(500):
                nursery.start_soon(store, number)

        assert len(replies) == 500
        assert leader.raft.applied_index - before <= 6

    play(story)


def test_an_entry_of_commits_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_queue, "BATCH_BYTES_MAX", 1000)

    async def story(cluster: GroupCluster) -> None:
        leader, coordinator = await coordinator_of(cluster)
        assert leader.raft is not None
        before = leader.raft.applied_index
        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(coordinator.commit_offsets, commit(number))

        assert leader.raft.applied_index - before >= 10
        assert await cluster.committed(0) is not None

    play(story)


def test_the_last_of_many_commits_in_one_entry_counts() -> None:
    async def story(cluster: GroupCluster) -> None:
        _, coordinator = await coordinator_of(cluster)
        previous: list[int | None] = []

        async def store(offset: int) -> None:
            reply = await coordinator.commit_offsets(commit(offset))
            previous.append(reply.results[0].previous_offset)

        async with trio.open_nursery() as nursery:
            for offset in range(1, 20):
                nursery.start_soon(store, offset)

        # Each replaces another one: they were applied one after the other.
        assert len(set(previous)) == 19
        assert set(range(1, 20)) - {await cluster.committed(0)} == set(previous) - {None}

    play(story)


def test_other_commands_wait_behind_one_entry_of_commits_at_most() -> None:
    async def story(cluster: GroupCluster) -> None:
        leader, coordinator = await coordinator_of(cluster)
        assert leader.raft is not None
        assert isinstance(leader.state, ReplicatedState)
        entries: list[int] = []

        async def flood() -> None:
            while True:
                for number in range(2000):
                    coordinator.commit_soon(commit(number, group=f"g{number}"), ignore)
                await trio.sleep(0.05)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood)
            for number in range(50):
                await trio.sleep(0.02)
                before = leader.raft.applied_index
                await leader.state.decide(create(number))
                entries.append(leader.raft.applied_index - before)
            nursery.cancel_scope.cancel()

        # Its own entry, the one of commits before it, and those of heartbeats.
        assert max(entries) <= 4
        assert len(leader.state.groups.groups) == 2000

    play(story)


def test_a_commit_too_large_for_an_entry_is_refused() -> None:
    async def story(cluster: GroupCluster) -> None:
        _, coordinator = await coordinator_of(cluster)
        one = PartitionCommit(ORDERS, 0, 0, None, "m" * 4000)
        request = CommitOffsetsRequest(GROUP, "", -1, 0, [one] * 200)

        with pytest.raises(InvalidRequestError, match="200 partitions is too large; use several"):
            await coordinator.commit_offsets(request)

    play(story)


def test_a_full_commit_queue_refuses_more_and_stores_the_waiting_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commit_queue, "QUEUE_BYTES_MAX", 2000)

    async def story(cluster: GroupCluster) -> None:
        _, coordinator = await coordinator_of(cluster)
        outcomes: list[object] = []

        async def store(offset: int) -> None:
            try:
                outcomes.append(await coordinator.commit_offsets(commit(offset)))
            except OverloadedError as error:
                outcomes.append(error)

        async with trio.open_nursery() as nursery:
            for offset in range(100):
                nursery.start_soon(store, offset)

        stored = [one for one in outcomes if isinstance(one, CommitOffsetsReply)]
        assert 0 < len(stored) < len(outcomes) == 100
        await coordinator.commit_offsets(commit(100))
        assert await cluster.committed(0) == 100

    play(story)


def test_waiting_commits_are_refused_when_leadership_is_lost() -> None:
    async def story(cluster: GroupCluster) -> None:
        leader, coordinator = await coordinator_of(cluster)
        others = [host.machine.name for host in cluster.group if host is not leader]
        heal = cluster.world.network.partition([leader.machine.name], others)
        refusals = 0

        async def store(offset: int) -> None:
            nonlocal refusals
            with pytest.raises(NotControllerError):
                await coordinator.commit_offsets(commit(offset))
            refusals += 1

        async with trio.open_nursery() as nursery:
            for offset in range(50):
                nursery.start_soon(store, offset)
            await trio.sleep(4)
            heal()

        assert refusals == 50

    play(story)


def test_a_commit_that_is_alone_is_proposed_at_once() -> None:
    async def story(cluster: GroupCluster) -> None:
        leader, coordinator = await coordinator_of(cluster)
        assert leader.raft is not None
        proposed: list[bytes] = []
        propose = leader.raft.propose_nowait

        def noting(command: bytes, decoded: object | None = None) -> PendingProposal:
            proposed.append(command)
            return propose(command, decoded)

        leader.raft.propose_nowait = noting  # type: ignore[method-assign]
        counts: list[int] = []
        for offset in range(1, 4):
            coordinator.commit_soon(commit(offset), ignore)
            counts.append(len(proposed))
            await coordinator.commit_offsets(commit(offset, group="another"))
            await coordinator.commit_offsets(commit(offset, group="another"))

        assert counts == [1, 4, 7]
        assert await cluster.committed(0) == 3

    play(story)


def test_a_commit_without_a_majority_times_out_and_is_not_answered_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commit_queue, "COMMIT_TIMEOUT_S", 0.2)

    async def story(cluster: GroupCluster) -> None:
        leader, coordinator = await coordinator_of(cluster)
        await coordinator.commit_offsets(commit(1))
        others = [host.machine.name for host in cluster.group if host is not leader]
        heal = cluster.world.network.partition([leader.machine.name], others)
        results: list[CommitResult] = []

        coordinator.commit_soon(commit(2), results.append)
        coordinator.commit_soon(commit(3), results.append)
        await trio.sleep(0.3)
        timed_out = list(results)
        heal()
        await until(lambda: len(results) == 2)
        await trio.sleep(2)

        assert [type(each) for each in timed_out] == [RequestTimedOutError]
        assert len(results) == 2

    play(story)


def test_a_commit_that_takes_long_is_answered_when_the_leadership_is_confirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(cluster: GroupCluster) -> None:
        leader, coordinator = await coordinator_of(cluster)
        assert leader.raft is not None
        await coordinator.commit_offsets(commit(1))
        confirmations = 0
        wait_current = leader.raft.wait_current

        async def counting() -> None:
            nonlocal confirmations
            confirmations += 1
            await wait_current()

        leader.raft.wait_current = counting  # type: ignore[method-assign]
        await coordinator.commit_offsets(commit(2))
        before = confirmations
        # From now on, any entry has taken longer than a leader may assume that it still leads.
        monkeypatch.setattr(leadership, "_CONFIRMED_FOR_S", -1.0)
        await coordinator.commit_offsets(commit(3))

        assert (before, confirmations) == (0, 1)
        monkeypatch.undo()

    play(story)
