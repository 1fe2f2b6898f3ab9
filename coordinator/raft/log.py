"""The part of a node's log in memory: all entries since the last compaction.

Pure: no clock, no I/O.

     compacted          kept in memory                        not there yet
    ───────────┬───────────────┬──────────────┬─────────────┬───────────────
             base          delivered     commit, durable   last

`durable` is the end of the log on this node's disk. It may be before or behind `commit`: a majority
can do without this node, and this node can be ahead of the others.

Invariant: base <= snapshot <= delivered <= min(commit, durable), and commit, durable <= last.
A node delivers to its state machine only entries on its own disk, so a snapshot is never ahead of
the log that it replaces. (While an installed snapshot is on its way to the disk, `snapshot` is
ahead of `durable`, and nothing is delivered.)
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import final

from tidelog.coordinator.raft.errors import DamagedLogError, ImpossibleMessageError
from tidelog.coordinator.raft.membership import Identity, Membership, decode_membership
from tidelog.coordinator.raft.messages import (
    ENTRY_OVERHEAD_BYTES,
    Entry,
    EntryId,
    EntryKind,
    SnapshotMeta,
    size_of,
)
from tidelog.wire.errors import WireFormatError


@final
class RaftLog:
    """Entries after a compacted point, with their durable, committed and delivered indexes."""

    def __init__(self, snapshot: SnapshotMeta, entries: Iterable[Entry] = ()) -> None:
        """Start with the snapshot and the entries on disk.

        A crash can come between the write of a snapshot and the truncation of the log. So entries
        that the snapshot covers are left out. If the log ends before the snapshot, or holds another
        entry in its place, no entry of it follows the snapshot (I72).

        Raises:
            DamagedLogError: Entries are missing in between, or out of order.
        """
        self.snapshot = snapshot
        """The newest snapshot; sent to a follower that needs compacted entries."""
        self.base = snapshot.entry_id
        """The last compacted entry."""
        stored = list(entries)
        self._entries: list[Entry] = _entries_behind(snapshot, stored)
        self.commit_index = snapshot.index
        """All entries up to here are committed. Never falls."""
        self.delivered_index = snapshot.index
        """Entries up to here, or a snapshot of them, were delivered to the state machine."""
        self.durable_index = self.last_index
        """This node's disk has the log up to here."""
        self.is_snapshot_unsynced = bool(stored) and stored[-1].entry_id != self.last
        """Whether the disk does not yet have the snapshot, followed only by later entries."""
        self.uncommitted_bytes = 0
        """Bytes of the entries behind `commit_index`."""
        self.unsynced_bytes = 0
        """Bytes of the entries behind `durable_index`."""
        self._memberships = [(snapshot.index, snapshot.membership)]
        self.membership = snapshot.membership
        """The membership in force: the last one that was appended, committed or not."""
        self._note_appended(self._entries)
        self.unsynced_bytes = 0

    @property
    def last_index(self) -> int:
        """The index of the last entry."""
        return self.base.index + len(self._entries)

    @property
    def last(self) -> EntryId:
        """The last entry."""
        return self._entries[-1].entry_id if self._entries else self.base

    @property
    def promotable_voters(self) -> tuple[Identity, ...]:
        """Voters that must be able to campaign when there is no leader.

        Also a voter whose removal is appended and not committed: it may be the only one that can
        be elected, because the others lack its last entries (4.2.2 of Ongaro's dissertation).
        """
        if self.membership_index <= self.commit_index:
            return self.membership.voters
        return self.membership.voters + self._memberships[-2][1].voters

    @property
    def membership_index(self) -> int:
        """The entry with the membership in force."""
        return self._memberships[-1][0]

    def membership_at(self, index: int) -> Membership:
        """Return the membership that was in force at an entry that is not compacted."""
        assert self.base.index <= index
        return next(found for at, found in reversed(self._memberships) if at <= index)

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry, `None` if it is compacted or not there."""
        position = index - self.base.index - 1
        if 0 <= position < len(self._entries):
            return self._entries[position].term
        return self.base.term if position == -1 else None

    def holds(self, entry_id: EntryId) -> bool:
        """Return whether this entry is in the log, or the last one that was compacted."""
        return self.term_at(entry_id.index) == entry_id.term

    def entries_from(self, index: int, *, max_bytes: int, max_count: int) -> tuple[Entry, ...]:
        """Return entries from `index` on; at least one, if there is one."""
        start = index - self.base.index - 1
        assert start >= 0
        end = start
        size_bytes = 0
        limit = min(len(self._entries), start + max_count)
        while end < limit:
            size_bytes += len(self._entries[end].payload) + ENTRY_OVERHEAD_BYTES
            if size_bytes > max_bytes and end > start:
                break
            end += 1
        return tuple(self._entries[start:end])

    def append(self, entry: Entry) -> None:
        """Append an entry of this node's own, as the leader."""
        assert entry.index == self.last_index + 1
        assert entry.term >= (self._entries[-1] if self._entries else self.base).term
        self._entries.append(entry)
        self._note_appended([entry])

    def accept(self, previous: EntryId, entries: Sequence[Entry]) -> int | None:
        """Append entries from the leader that follow `previous`.

        Entries that are in the log already stay; the log is truncated only from the first conflict
        on. So a late message with fewer entries removes nothing. Compacted entries were committed,
        so the leader has them as well, and they count as matching (I70).

        Returns:
            The index up to which the log agrees with the leader's, `None` if `previous` is missing.

        Raises:
            ImpossibleMessageError: An entry conflicts with a committed one.
        """
        if previous.index >= self.base.index and not self.holds(previous):
            return None
        for position, entry in enumerate(entries):
            if entry.index > self.base.index and not self.holds(entry.entry_id):
                if entry.index <= self.commit_index:
                    raise ImpossibleMessageError(
                        f"entry {entry.index} of term {entry.term} conflicts with a committed entry"
                        f" of term {self.term_at(entry.index)}"
                    )
                self._truncate_from(entry.index)
                self._entries.extend(entries[position:])
                self._note_appended(entries[position:])
                break
        end = entries[-1].index if entries else previous.index
        return max(end, self.base.index)

    def find_conflict_by_term(self, limit: EntryId) -> EntryId:
        """Return the last entry whose index and term are both at most these.

        If the other log has `limit` at this place, all entries behind the result differ: they have
        a higher term than that log can have there. This skips a term at a time (5.3 of the paper).
        """
        end = max(0, min(limit.index, self.last_index) - self.base.index)
        position = bisect_right(self._entries, limit.term, hi=end, key=_term_of)
        return self._entries[position - 1].entry_id if position else self.base

    def commit_to(self, index: int) -> None:
        """Advance the commit index; a lower index changes nothing."""
        assert index <= self.last_index, "committed entries are in the log"
        first = self.commit_index - self.base.index
        committed = self._entries[first : max(first, index - self.base.index)]
        self.uncommitted_bytes -= size_of(committed)
        self.commit_index = max(self.commit_index, index)

    @property
    def has_undelivered(self) -> bool:
        """Whether `take_committed` would return entries."""
        first = self.delivered_index + 1
        return self.base.index < first <= self.commit_index and first <= self.durable_index

    def take_committed(self, *, max_bytes: int) -> tuple[Entry, ...]:
        """Return committed entries that are durable here and undelivered; they count as delivered.

        After an installed snapshot it returns nothing until `take_installed` has returned it.
        """
        if not self.has_undelivered:
            return ()
        max_count = min(self.commit_index, self.durable_index) - self.delivered_index
        first = self.delivered_index + 1
        taken = self.entries_from(first, max_bytes=max_bytes, max_count=max_count)
        self.delivered_index = taken[-1].index
        return taken

    def unsynced(self) -> tuple[Entry, ...]:
        """Return the entries that this node's disk does not have."""
        start = max(self.durable_index, self.base.index) - self.base.index
        return tuple(self._entries[start:])

    def synced(self, last: EntryId, snapshot: SnapshotMeta | None) -> None:
        """Record that the disk has the log that ended with `last` when the write began.

        The log may have been truncated and rewritten in the meantime. If it still has that entry,
        it has the same ones before it. An index alone would not show that (I73).

        Args:
            last: The last entry at the time when the write began.
            snapshot: The snapshot by which the write replaced the log, if any.
        """
        if self.is_snapshot_unsynced:
            if snapshot != self.snapshot:
                return
            self.is_snapshot_unsynced = False
            self.durable_index = self.snapshot.index
        if last.index > self.durable_index and self.holds(last):
            first = self.durable_index - self.base.index
            synced = self._entries[first : last.index - self.base.index]
            self.unsynced_bytes -= size_of(synced)
            self.durable_index = last.index

    def install(self, snapshot: SnapshotMeta) -> bool:
        """Install a snapshot from the leader.

        If the log has the last entry that the snapshot covers, it has all of them, and keeps the
        entries behind it. Otherwise no entry in it can be trusted to follow the snapshot: all of
        them are removed (rule 7 of figure 13; I69).

        Returns:
            Whether the log was replaced by the snapshot.
        """
        if snapshot.index <= self.commit_index:
            return False
        if self.holds(snapshot.entry_id):
            self.commit_to(snapshot.index)
            return False
        self.durable_index = min(self.durable_index, self.commit_index)
        self._entries = []
        self.base = snapshot.entry_id
        self.snapshot = snapshot
        self.commit_index = snapshot.index
        self.is_snapshot_unsynced = True
        self.uncommitted_bytes = self.unsynced_bytes = 0
        self._memberships = [(snapshot.index, snapshot.membership)]
        self.membership = snapshot.membership
        return True

    def take_installed(self) -> SnapshotMeta | None:
        """Return an installed snapshot that is on the disk; it counts as delivered from now on."""
        if self.is_snapshot_unsynced or self.delivered_index >= self.snapshot.index:
            return None
        self.delivered_index = self.snapshot.index
        return self.snapshot

    def compact(self, snapshot: SnapshotMeta, *, keep_entries: int) -> None:
        """Replace entries by an own, durable snapshot, except the last `keep_entries`.

        The kept entries spare followers that are a little behind a whole snapshot.
        """
        assert snapshot.index <= self.delivered_index
        if snapshot.index <= self.snapshot.index:
            return
        self.snapshot = snapshot
        base_index = max(self.base.index, snapshot.index - keep_entries)
        base_term = self.term_at(base_index)
        assert base_term is not None
        del self._entries[: base_index - self.base.index]
        self.base = EntryId(base_index, base_term)
        while len(self._memberships) > 1 and self._memberships[1][0] <= base_index:
            del self._memberships[0]

    def _truncate_from(self, index: int) -> None:
        assert index > self.commit_index, "committed entries are never truncated"
        cut = self._entries[index - self.base.index - 1 :]
        del self._entries[index - self.base.index - 1 :]
        self.uncommitted_bytes -= size_of(cut)
        self.unsynced_bytes -= size_of(cut[max(0, self.durable_index + 1 - index) :])
        self.durable_index = min(self.durable_index, index - 1)
        while self._memberships[-1][0] >= index:
            del self._memberships[-1]
        self.membership = self._memberships[-1][1]

    def _note_appended(self, entries: Sequence[Entry]) -> None:
        size_bytes = size_of(entries)
        self.uncommitted_bytes += size_bytes
        self.unsynced_bytes += size_bytes
        for entry in entries:
            if entry.kind is EntryKind.MEMBERSHIP:
                self.membership = decode_membership(entry.payload)
                self._memberships.append((entry.index, self.membership))


def _term_of(entry: Entry) -> int:
    return entry.term


def _entries_behind(snapshot: SnapshotMeta, entries: list[Entry]) -> list[Entry]:
    for before, entry in pairwise(entries):
        if entry.index != before.index + 1 or entry.term < before.term:
            raise DamagedLogError(
                f"entry {entry.index} of term {entry.term} follows entry {before.index} of"
                f" term {before.term}"
            )
    if entries and entries[0].index > snapshot.index + 1:
        raise DamagedLogError(
            f"the log begins with entry {entries[0].index}, the snapshot ends with"
            f" {snapshot.index}: the entries between them are missing"
        )
    for entry in entries:
        if entry.kind is EntryKind.MEMBERSHIP:
            _check_membership(entry)
    if not entries or entries[-1].index < snapshot.index:
        return []
    position = snapshot.index - entries[0].index
    if position >= 0 and entries[position].term != snapshot.term:
        return []
    behind = entries[position + 1 :]
    if behind and behind[0].term < snapshot.term:
        raise DamagedLogError(
            f"entry {behind[0].index} of term {behind[0].term} follows a snapshot of term"
            f" {snapshot.term}"
        )
    return behind


def _check_membership(entry: Entry) -> None:
    try:
        decode_membership(entry.payload)
    except WireFormatError as error:
        raise DamagedLogError(f"entry {entry.index}: {error}") from error
