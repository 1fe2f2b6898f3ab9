"""The one write that is on its way to the disk."""

import pytest

from tests.coordinator.raft.samples import NOTHING, at, entries, entry, snapshot
from tidelog.coordinator.raft.hard_state import HardStateGate
from tidelog.coordinator.raft.log import RaftLog
from tidelog.coordinator.raft.pending_write import PendingWrite
from tidelog.coordinator.raft.ready import HardState, Write


def begun() -> tuple[HardStateGate, RaftLog, PendingWrite]:
    promises, log = HardStateGate(HardState(1)), RaftLog(NOTHING, entries(1))
    return promises, log, PendingWrite(promises, log, 3)


def test_a_write_has_all_unsynced_state() -> None:
    promises, log, writing = begun()
    promises.advance_term(2)
    log.append(entry(2, 2))

    assert writing.begin() == Write(HardState(2), None, (entry(2, 2),), at(2, 2))


def test_there_is_no_write_when_all_state_is_durable() -> None:
    _, _, writing = begun()

    assert writing.begin() is None


def test_an_installed_snapshot_is_written_with_later_entries() -> None:
    _, log, writing = begun()
    log.install(snapshot(9, 3))
    log.accept(at(9, 3), entries(3, first=10))

    write = writing.begin()

    assert write == Write(None, snapshot(9, 3), (entry(10, 3),), at(10, 3))


def test_changes_during_a_write_are_in_the_next_one() -> None:
    _, log, writing = begun()
    log.append(entry(2, 1))
    first = writing.begin()
    log.append(entry(3, 1))

    assert first is not None
    assert writing.begin() is None
    assert writing.end(first)

    assert writing.begin() == Write(None, None, (entry(3, 1),), at(3, 1))


def test_the_end_of_a_write_says_whether_more_of_the_log_is_durable() -> None:
    promises, log, writing = begun()
    promises.advance_term(2)
    write = writing.begin()
    assert write is not None
    assert not writing.end(write)

    log.append(entry(2, 2))
    write = writing.begin()
    log.accept(at(1, 1), entries(3, first=2))

    assert write is not None
    assert not writing.end(write)


def test_another_write_than_the_one_under_way_cannot_end() -> None:
    _, log, writing = begun()
    log.append(entry(2, 1))
    writing.begin()

    with pytest.raises(AssertionError, match="one write at a time"):
        writing.end(Write(None, None, (), at(1, 1)))


def test_a_write_is_stuck_when_it_takes_too_long_until_it_ends() -> None:
    _, log, writing = begun()
    for _ in range(10):
        writing.tick()
    log.append(entry(2, 1))
    write = writing.begin()
    seen: list[bool] = []
    for _ in range(3):
        seen.append(writing.is_stuck)
        writing.tick()
    seen.append(writing.is_stuck)
    assert write is not None
    writing.end(write)

    assert seen == [False, False, False, True]
    log.append(entry(3, 1))
    assert writing.begin() is not None
    for _ in range(3):
        assert not writing.is_stuck, "the time of the next write counts from its own begin"
        writing.tick()
    assert writing.is_stuck
