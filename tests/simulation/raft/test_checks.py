"""Tests of the checkers: each objects to a broken promise."""

from random import Random

import pytest

from tests.coordinator.raft.samples import THREE, A, B, C, at, entries, entry, snapshot
from tests.coordinator.raft.single_node import append, leader, node, stored, sync
from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.raft.checks import Checks
from tests.simulation.raft.disk import RaftDisk
from tidelog.coordinator.raft.membership import Membership
from tidelog.coordinator.raft.messages import AppendReply, VoteReply
from tidelog.coordinator.raft.ready import HardState, Write


def disk(term: int = 0) -> RaftDisk:
    made = RaftDisk(THREE)
    made.hard_state = HardState(term)
    return made


def caught(error: "pytest.ExceptionInfo[ViolationError]") -> str:
    return error.value.checker


def test_two_leaders_of_one_term_are_found() -> None:
    checks = Checks()
    checks.observe(leader(), boot=1)

    with pytest.raises(ViolationError) as error:
        checks.observe(leader(), boot=2)

    assert caught(error) == "ElectionSafety"


def test_a_commit_that_falls_is_found() -> None:
    checks = Checks()
    core = node(stored(1, 1))
    core.step(append(1, (1, 1), 1, commit=2))
    checks.observe(core, boot=1)

    with pytest.raises(ViolationError) as error:
        checks.observe(node(stored(1, 1)), boot=1)

    assert caught(error) == "CommitNeverFalls"


def test_a_term_that_falls_within_a_boot_is_found() -> None:
    checks = Checks()
    checks.observe(node(stored(3)), boot=1)

    with pytest.raises(ViolationError) as error:
        checks.observe(node(stored(2)), boot=1)

    assert caught(error) == "MonotoneTerm"


def test_another_entry_at_a_committed_index_is_found() -> None:
    checks = Checks()
    for boot, term in ((1, 1), (2, 2)):
        core = node(stored(2))
        core.step(append(2, (0, 0), term, commit=1))
        sync(core)
        if boot == 1:
            checks.observe(core, boot)

    with pytest.raises(ViolationError) as error:
        checks.observe(core, boot=2)

    assert caught(error) == "StateMachineSafety"


def test_a_leader_without_a_committed_entry_is_found() -> None:
    checks = Checks()
    follower = node(stored(1))
    follower.step(append(1, (0, 0), 1, 1, commit=2))
    checks.observe(follower, boot=1)

    with pytest.raises(ViolationError) as error:
        checks.observe(leader(term=3), boot=2)

    assert caught(error) in {"LeaderCompleteness", "StateMachineSafety"}


@pytest.mark.parametrize(("applied_index", "index"), [(0, 2), (1, 1)])
def test_skipped_and_repeated_entries_are_found(applied_index: int, index: int) -> None:
    with pytest.raises(ViolationError) as error:
        Checks().apply(A, applied_index, entry(index, 1))

    assert caught(error) == "AppliedInOrder"


def test_a_snapshot_that_reverts_the_state_machine_is_found() -> None:
    with pytest.raises(ViolationError) as error:
        Checks().restore(A, 5, snapshot(5, 1))

    assert caught(error) == "AppliedInOrder"


def test_a_second_vote_in_a_term_is_found_over_reboots() -> None:
    checks = Checks()
    for candidate in (B, C):
        made = disk()
        made.hard_state = HardState(4, candidate)
        reply = VoteReply(A, candidate, 4, is_granted=True)
        if candidate == B:
            checks.send(node(), made, reply)

    with pytest.raises(ViolationError) as error:
        checks.send(node(), made, reply)

    assert caught(error) == "OneVote"


def test_a_vote_that_is_not_durable_is_found() -> None:
    with pytest.raises(ViolationError) as error:
        Checks().send(node(), disk(4), VoteReply(A, B, 4, is_granted=True))

    assert caught(error) == "DurableBeforeSent"


def test_an_acknowledgement_of_an_entry_that_is_not_durable_is_found() -> None:
    with pytest.raises(ViolationError) as error:
        Checks().send(node(stored(1, 1)), disk(1), AppendReply(A, B, 1, 1, 1, 1, 0))

    assert caught(error) == "DurableBeforeSent"


def test_a_term_that_falls_on_the_disk_is_found() -> None:
    with pytest.raises(ViolationError) as error:
        Checks().write(A, disk(4), Write(HardState(3), None, (), at(0, 0)))

    assert caught(error) == "HardStateNeverGoesBack"


def test_two_entries_of_one_index_and_term_are_found() -> None:
    checks = Checks()
    checks.write(A, disk(), Write(None, None, tuple(entries(1)), at(1, 1)))

    with pytest.raises(ViolationError) as error:
        checks.write(B, disk(), Write(None, None, (entry(1, 1, b"other"),), at(1, 1)))

    assert caught(error) == "LogMatching"


def test_a_read_that_misses_a_commit_is_found() -> None:
    checks = Checks()
    checks.observe(leader(), boot=1)
    checks.ask(7)

    checks.answer(7, 1)
    with pytest.raises(ViolationError) as error:
        checks.answer(7, 0)

    assert caught(error) == "ReadIndexIsLinearizable"


def test_a_crash_leaves_the_first_steps_of_a_write() -> None:
    write = Write(HardState(2), snapshot(3, 2), tuple(entries(2, 2, first=4)), at(5, 2))
    seen: list[tuple[int, int, int]] = []
    for step_count in range(7):
        torn = RaftDisk(Membership())
        torn.entries = entries(1, 1)
        torn.carry_out(write, step_count)
        seen.append((torn.hard_state.term, torn.snapshot.index, len(torn.entries)))

    assert seen == [(0, 0, 2), (2, 0, 2), (2, 3, 2), (2, 3, 0), (2, 3, 0), (2, 3, 1), (2, 3, 2)]


def test_a_torn_write_depends_on_the_seed() -> None:
    write = Write(None, None, tuple(entries(1, 1, 1)), at(3, 1))
    lengths: set[int] = set()
    for seed in range(60):
        torn = RaftDisk(Membership())
        torn.tear(write, Random(seed))
        lengths.add(len(torn.entries))

    assert lengths == {0, 1, 2, 3}
