"""The log of one node."""

import pytest

from tests.coordinator.raft.samples import NOTHING, THREE, A, B, C, D, at, entries, entry, snapshot
from tidelog.coordinator.raft.errors import DamagedLogError, ImpossibleMessageError
from tidelog.coordinator.raft.log import RaftLog
from tidelog.coordinator.raft.membership import encode_membership
from tidelog.coordinator.raft.messages import Entry, EntryId, EntryKind

FOUR = THREE.with_learner(D)


def membership_entry(index: int, term: int) -> Entry:
    return Entry(index, term, EntryKind.MEMBERSHIP, encode_membership(FOUR))


def terms(log: RaftLog) -> list[int | None]:
    return [log.term_at(index) for index in range(log.base.index, log.last_index + 1)]


class TestAccept:
    """Entries from the leader."""

    def test_entries_behind_a_known_one_are_appended(self) -> None:
        log = RaftLog(NOTHING, entries(1, 1))

        assert log.accept(at(2, 1), entries(2, 2, first=3)) == 4
        assert log.last == at(4, 2)

    @pytest.mark.parametrize("previous", [at(3, 1), at(2, 2), at(9, 1)])
    def test_entries_behind_an_unknown_one_are_refused(self, previous: EntryId) -> None:
        log = RaftLog(NOTHING, entries(1, 1))

        assert log.accept(previous, entries(2, first=previous.index + 1)) is None
        assert log.last == at(2, 1)

    def test_the_log_is_truncated_at_a_conflict(self) -> None:
        log = RaftLog(NOTHING, entries(1, 1, 1, 1))

        assert log.accept(at(1, 1), entries(1, 3, first=2)) == 3
        assert terms(log) == [0, 1, 1, 3]
        assert log.durable_index == 2

    def test_a_late_append_with_fewer_entries_truncates_nothing(self) -> None:
        log = RaftLog(NOTHING, entries(1, 1, 1, 1))

        assert log.accept(at(1, 1), entries(1, first=2)) == 2
        assert log.last == at(4, 1)
        assert log.durable_index == 4

    @pytest.mark.invariant("I70")
    def test_compacted_entries_count_as_matching_and_are_not_appended_again(self) -> None:
        """An append below the compacted point."""
        log = RaftLog(snapshot(5, 2), entries(2, first=6))

        assert log.accept(at(2, 1), entries(1, 2, 2, 2, 3, first=3)) == 7
        assert terms(log) == [2, 2, 3]
        assert log.accept(at(1, 1), entries(1, 1, first=2)) == 5
        assert log.accept(at(1, 1), []) == 5
        assert terms(log) == [2, 2, 3]

    def test_the_last_compacted_entry_must_have_the_term_that_the_leader_names(self) -> None:
        log = RaftLog(snapshot(5, 2), entries(2, first=6))

        assert log.accept(at(5, 1), []) is None
        assert log.accept(at(5, 2), []) == 5

    def test_a_durable_snapshot_leaves_the_entries_behind_it_unsynced(self) -> None:
        log = RaftLog(NOTHING, entries(1, 1))
        log.install(snapshot(9, 4))
        (behind,) = entries(4, first=10)
        log.accept(at(9, 4), [behind])

        log.synced(at(9, 4), snapshot(9, 4))

        assert log.unsynced_bytes == behind.size_bytes

    def test_committed_entries_are_never_truncated(self) -> None:
        log = RaftLog(NOTHING, entries(1, 1))
        log.commit_to(2)

        with pytest.raises(ImpossibleMessageError, match="conflicts with a committed entry"):
            log.accept(at(1, 1), entries(2, first=2))


class TestHints:
    """Conflict hints: where two logs may agree."""

    @pytest.mark.parametrize(
        ("limit", "expected"),
        [
            (at(9, 9), at(6, 5)),
            (at(4, 9), at(4, 3)),
            (at(9, 4), at(5, 3)),
            (at(9, 3), at(5, 3)),
            (at(9, 2), at(2, 2)),
            (at(1, 9), at(1, 1)),
            (at(9, 0), at(0, 0)),
        ],
    )
    def test_find_conflict_by_term(self, limit: EntryId, expected: EntryId) -> None:
        log = RaftLog(NOTHING, entries(1, 2, 3, 3, 3, 5))

        assert log.find_conflict_by_term(limit) == expected

    def test_no_conflict_hint_is_below_the_compacted_point(self) -> None:
        log = RaftLog(snapshot(5, 2), entries(3, first=6))

        assert log.find_conflict_by_term(at(3, 9)) == at(5, 2)
        assert log.find_conflict_by_term(at(9, 1)) == at(5, 2)


class TestDurability:
    """Entries on the own disk."""

    def test_appended_entries_are_unsynced_until_they_are_durable(self) -> None:
        log = RaftLog(NOTHING, entries(1))
        log.append(entry(2, 1))
        log.append(entry(3, 1))

        assert [unsynced.index for unsynced in log.unsynced()] == [2, 3]

        log.synced(at(2, 1), None)
        assert [unsynced.index for unsynced in log.unsynced()] == [3]

    @pytest.mark.invariant("I73")
    def test_a_sync_of_overwritten_entries_is_ignored(self) -> None:
        """The disk acknowledges a term and an index, not an index alone."""
        log = RaftLog(NOTHING, entries(1))
        log.append(entry(2, 2))
        log.append(entry(3, 2))
        log.accept(at(1, 1), entries(3, 3, first=2))

        log.synced(at(3, 2), None)

        assert log.durable_index == 1
        assert [unsynced.term for unsynced in log.unsynced()] == [3, 3]

    @pytest.mark.invariant("I73")
    def test_entries_that_were_overwritten_and_restored_are_durable(self) -> None:
        """The disk has the entries that the log has again."""
        log = RaftLog(NOTHING, entries(1))
        log.append(entry(2, 2))
        log.accept(at(1, 1), entries(3, first=2))
        log.accept(at(1, 1), entries(2, first=2))

        log.synced(at(2, 2), None)

        assert log.durable_index == 2

    def test_entries_are_delivered_once_when_committed_and_durable(self) -> None:
        log = RaftLog(NOTHING)
        for index in (1, 2, 3):
            log.append(entry(index, 1))
        log.commit_to(3)
        assert log.take_committed(max_bytes=1000) == ()

        log.synced(at(2, 1), None)
        assert log.take_committed(max_bytes=1000) == (entry(1, 1), entry(2, 1))
        assert log.take_committed(max_bytes=1000) == ()

    def test_delivered_entries_are_bounded_by_bytes(self) -> None:
        log = RaftLog(NOTHING, [entry(index, 1, b"x" * 100) for index in (1, 2, 3)])
        log.commit_to(3)

        sizes = [len(log.take_committed(max_bytes=limit)) for limit in (270, 1)]

        assert sizes == [2, 1]

    def test_no_entry_behind_the_commit_index_is_delivered(self) -> None:
        log = RaftLog(NOTHING, entries(1, 1, 1, 1, 1, 1))

        taken: list[list[int]] = []
        for commit_index in (2, 3, 5):
            log.commit_to(commit_index)
            taken.append([each.index for each in log.take_committed(max_bytes=1000)])

        assert taken == [[1, 2], [3], [4, 5]]

    def test_entries_that_fill_the_limit_of_bytes_are_delivered_together(self) -> None:
        log = RaftLog(NOTHING, [entry(index, 1, b"x" * 100) for index in (1, 2, 3)])
        log.commit_to(3)
        limit = 2 * entry(1, 1, b"x" * 100).size_bytes

        sizes = [len(log.take_committed(max_bytes=limit)) for _ in range(3)]

        assert sizes == [2, 1, 0]


@pytest.mark.invariant("I72")
class TestStart:
    """The remains of a crash."""

    def test_entries_that_the_snapshot_covers_are_left_out(self) -> None:
        log = RaftLog(snapshot(3, 2), entries(1, 1, 2, 2, 3))

        assert (log.base, log.last) == (at(3, 2), at(5, 3))
        assert log.commit_index == log.delivered_index == 3
        assert not log.is_snapshot_unsynced

    @pytest.mark.parametrize(
        "stored", [entries(1, 1), entries(1, 1, 1, 1, 1), entries(1, 3, first=3)]
    )
    def test_a_log_that_conflicts_with_the_snapshot_is_dropped_at_start(
        self, stored: list[Entry]
    ) -> None:
        log = RaftLog(snapshot(3, 2), stored)

        assert log.last == at(3, 2)

    def test_a_dropped_log_is_removed_from_disk_before_an_append(self) -> None:
        log = RaftLog(snapshot(3, 2), entries(1, 1))

        assert log.is_snapshot_unsynced
        log.synced(at(3, 2), snapshot(3, 2))
        assert not log.is_snapshot_unsynced

    @pytest.mark.parametrize(
        "stored",
        [
            entries(2, first=5),
            [*entries(1, 1), *entries(1, first=4)],
            entries(1, 2, 1),
            entries(1, first=4),
            entries(1, 3, first=4),
            [Entry(4, 2, EntryKind.MEMBERSHIP, b"\xc1")],
        ],
    )
    def test_a_log_with_a_gap_or_out_of_order_is_damaged(self, stored: list[Entry]) -> None:
        with pytest.raises(DamagedLogError):
            RaftLog(snapshot(3, 2), stored)

    def test_the_membership_in_the_log_is_in_force_again(self) -> None:
        log = RaftLog(NOTHING, [entry(1, 1), membership_entry(2, 1)])

        assert log.membership == FOUR
        assert log.membership_index == 2


class TestSnapshots:
    """Snapshots from the leader, and own ones."""

    @pytest.mark.invariant("I69")
    def test_a_snapshot_replaces_a_log_that_conflicts_with_it(self) -> None:
        """Rule 7 of figure 13: the whole log is removed, not only the covered entries."""
        log = RaftLog(NOTHING, entries(1, 1, 1, 1, 1))

        assert log.install(snapshot(3, 2, FOUR))

        assert log.last == at(3, 2)
        assert log.membership == FOUR
        assert log.durable_index == 0
        assert log.take_installed() is None
        log.synced(at(3, 2), snapshot(3, 2, FOUR))
        assert log.take_installed() == snapshot(3, 2, FOUR)
        assert log.take_installed() is None
        assert log.durable_index == 3

    @pytest.mark.invariant("I69")
    def test_a_matching_snapshot_truncates_nothing(self) -> None:
        """A stale snapshot does not truncate matching entries."""
        log = RaftLog(NOTHING, entries(1, 1, 2, 2, 2))

        assert not log.install(snapshot(3, 2))

        assert log.last == at(5, 2)
        assert log.commit_index == 3
        assert log.durable_index == 5

    def test_a_snapshot_below_the_commit_index_is_ignored(self) -> None:
        log = RaftLog(NOTHING, entries(1, 1, 2))
        log.commit_to(3)

        assert not log.install(snapshot(2, 1))
        assert log.commit_index == 3

    def test_no_entry_is_delivered_before_an_installed_snapshot_is_durable(self) -> None:
        log = RaftLog(NOTHING, entries(1, 1))
        log.commit_to(2)
        log.install(snapshot(9, 3))
        log.accept(at(9, 3), entries(3, first=10))
        log.commit_to(10)

        assert log.take_committed(max_bytes=1000) == ()

        log.synced(at(10, 3), snapshot(9, 3))
        assert log.take_installed() == snapshot(9, 3)
        assert log.take_committed(max_bytes=1000) == (entry(10, 3),)

    def test_a_snapshot_that_ends_with_the_next_entry_is_installed_and_not_delivered(self) -> None:
        log = RaftLog(NOTHING, entries(1, 1))
        log.commit_to(2)
        assert len(log.take_committed(max_bytes=1000)) == 2

        log.install(snapshot(3, 2))
        log.synced(at(3, 2), snapshot(3, 2))

        assert not log.has_undelivered
        assert log.take_committed(max_bytes=1000) == ()
        assert log.take_installed() == snapshot(3, 2)

    def test_an_own_snapshot_is_not_installed(self) -> None:
        log = RaftLog(snapshot(1, 1), entries(1, 1, first=2))
        assert log.take_installed() is None
        log.commit_to(3)
        log.take_committed(max_bytes=1000)

        log.compact(snapshot(3, 1), keep_entries=0)

        assert log.take_installed() is None

    def test_a_repeated_compaction_changes_nothing(self) -> None:
        log = RaftLog(NOTHING, entries(1, 1, 2, 2, 2))
        log.commit_to(4)
        log.take_committed(max_bytes=1000)
        log.compact(snapshot(4, 2), keep_entries=2)

        log.compact(snapshot(4, 2), keep_entries=0)

        assert (log.base, log.last) == (at(2, 1), at(5, 2))

    def test_a_sync_without_the_snapshot_does_not_make_it_durable(self) -> None:
        log = RaftLog(NOTHING, entries(1))
        log.install(snapshot(9, 3))

        log.synced(at(9, 3), None)

        assert log.is_snapshot_unsynced

    def test_a_snapshot_is_written_once_despite_a_later_truncation(self) -> None:
        log = RaftLog(NOTHING, entries(1))
        log.install(snapshot(9, 3))
        log.accept(at(9, 3), entries(3, 3, first=10))
        log.accept(at(9, 3), entries(4, first=10))

        log.synced(at(11, 3), snapshot(9, 3))

        assert not log.is_snapshot_unsynced
        assert log.durable_index == 9
        assert log.unsynced() == (entry(10, 4),)

    def test_compaction_keeps_entries_for_slow_followers(self) -> None:
        log = RaftLog(NOTHING, entries(1, 1, 2, 2, 2))
        log.commit_to(4)
        log.take_committed(max_bytes=1000)

        log.compact(snapshot(4, 2), keep_entries=2)

        assert (log.base, log.snapshot, log.last) == (at(2, 1), snapshot(4, 2), at(5, 2))
        log.compact(snapshot(3, 2), keep_entries=0)
        assert log.snapshot == snapshot(4, 2)


class TestMembership:
    """The membership in the log."""

    def test_a_membership_is_in_force_when_appended_and_reverted_when_truncated(self) -> None:
        log = RaftLog(NOTHING, entries(1))

        log.accept(at(1, 1), [membership_entry(2, 1)])
        assert log.membership == FOUR

        log.accept(at(1, 1), [entry(2, 2)])
        assert log.membership == THREE
        assert log.membership_index == 0

    def test_the_membership_at_every_uncompacted_entry_is_known(self) -> None:
        log = RaftLog(NOTHING, [entry(1, 1), membership_entry(2, 1), entry(3, 1)])
        log.commit_to(3)
        log.take_committed(max_bytes=1000)

        assert [log.membership_at(index) for index in (1, 2, 3)] == [THREE, FOUR, FOUR]

        log.compact(snapshot(3, 1, FOUR), keep_entries=0)
        assert log.membership_at(3) == FOUR
        assert log.membership_index == 2

    def test_a_compaction_keeps_the_memberships_of_the_entries_that_stay(self) -> None:
        log = RaftLog(NOTHING, [entry(1, 1), membership_entry(2, 1), entry(3, 1)])
        log.commit_to(3)
        log.take_committed(max_bytes=1000)

        log.compact(snapshot(3, 1, FOUR), keep_entries=2)

        assert [log.membership_at(index) for index in (1, 2, 3)] == [THREE, FOUR, FOUR]

    def test_a_removed_voter_is_promotable_until_its_removal_is_committed(self) -> None:
        log = RaftLog(NOTHING)
        log.append(Entry(1, 1, EntryKind.MEMBERSHIP, encode_membership(THREE.without(1))))

        assert set(log.promotable_voters) == {A, B, C}
        log.commit_to(1)
        assert set(log.promotable_voters) == {B, C}


def test_uncommitted_bytes_follow_appends_commits_and_truncations() -> None:
    log = RaftLog(NOTHING, entries(1, 1, 1))
    size = entry(1, 1).size_bytes

    assert log.uncommitted_bytes == 3 * size
    log.commit_to(1)
    assert log.uncommitted_bytes == 2 * size
    log.accept(at(1, 1), entries(2, first=2))
    assert log.uncommitted_bytes == size
    log.install(snapshot(9, 3))
    assert log.uncommitted_bytes == 0


def test_unsynced_bytes_follow_appends_writes_and_truncations() -> None:
    log = RaftLog(NOTHING, entries(1))
    size = entry(1, 1).size_bytes
    assert log.unsynced_bytes == 0

    log.accept(at(1, 1), entries(1, 1, 1, 1, first=2))
    log.synced(at(2, 1), None)
    assert log.unsynced_bytes == 3 * size

    log.accept(at(3, 1), entries(2, first=4))
    assert log.unsynced_bytes == 2 * size, "entry 3, and the new entry 4"
    log.accept(at(1, 1), entries(3, first=2))
    assert log.unsynced_bytes == size, "the new entry 2"
    log.install(snapshot(9, 3))
    assert log.unsynced_bytes == 0
