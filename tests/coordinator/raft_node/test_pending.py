"""Outcomes of pending proposals and pending reads."""

import pytest

from tidelog.coordinator.raft.messages import EntryId
from tidelog.coordinator.raft_node.pending_proposals import (
    LostProposalError,
    OvertakenProposalError,
    PendingProposals,
)
from tidelog.coordinator.raft_node.pending_reads import PendingReads
from tidelog.wire.errors import LogOfflineError


async def test_an_applied_entry_settles_its_proposal() -> None:
    waiting = PendingProposals()
    command = waiting.add(EntryId(7, 2))
    waiting.applied(EntryId(6, 2))
    was_settled_before = command.is_settled

    waiting.applied(EntryId(7, 2))

    assert not was_settled_before
    assert command.is_settled
    assert await command.wait() == 7


async def test_a_decoded_payload_is_kept_until_its_index_is_applied() -> None:
    waiting = PendingProposals()
    older, newer = waiting.add(EntryId(7, 2), "older"), waiting.add(EntryId(7, 3), "newer")

    found = [waiting.decoded(EntryId(index, term)) for index, term in [(7, 2), (7, 3), (7, 4)]]
    elsewhere = waiting.decoded(EntryId(8, 3))
    waiting.applied(EntryId(7, 4))

    assert found == ["older", "newer", None]
    assert elsewhere is None
    assert waiting.decoded(EntryId(7, 3)) is older.decoded is newer.decoded is None


async def test_another_entry_at_the_index_loses_the_proposal() -> None:
    waiting = PendingProposals()
    command = waiting.add(EntryId(7, 2))

    waiting.applied(EntryId(7, 3))

    with pytest.raises(LostProposalError):
        await command.wait()


async def test_two_proposals_of_different_terms_may_wait_at_one_index() -> None:
    waiting = PendingProposals()
    older, newer = waiting.add(EntryId(7, 2)), waiting.add(EntryId(7, 3))

    waiting.applied(EntryId(7, 3))

    assert await newer.wait() == 7
    with pytest.raises(LostProposalError):
        await older.wait()


async def test_a_snapshot_fails_covered_proposals_and_keeps_later_ones() -> None:
    waiting = PendingProposals()
    covered, behind = waiting.add(EntryId(7, 2)), waiting.add(EntryId(8, 2))

    waiting.overtaken(7)

    with pytest.raises(OvertakenProposalError):
        await covered.wait()
    assert not behind.is_settled


async def test_the_end_of_a_node_fails_all_proposals() -> None:
    waiting = PendingProposals()
    commands = [waiting.add(EntryId(index, 2)) for index in (7, 7, 9)]

    waiting.fail(LogOfflineError("the disk failed"))

    for command in commands:
        with pytest.raises(LogOfflineError):
            await command.wait()


def test_a_read_ends_when_it_is_confirmed_and_its_index_is_applied() -> None:
    reads = PendingReads()
    first, second = reads.add(), reads.add()

    reads.applied(10)
    reads.confirmed(first.context, index=11)
    reads.applied(10)
    assert not first.is_over.is_set()

    reads.applied(11)
    assert first.is_over.is_set()
    assert not second.is_over.is_set(), "no majority has confirmed it"


def test_a_cancelled_read_is_removed() -> None:
    reads = PendingReads()
    read = reads.add()

    reads.remove(read)
    reads.confirmed(read.context, index=1)
    reads.applied(1)

    assert not read.is_over.is_set()


def test_a_deposed_leader_wakes_all_reads() -> None:
    reads = PendingReads()
    read = reads.add()

    reads.wake_all()

    assert read.is_over.is_set()
