"""Simulated disk of one Raft node, with torn writes after a crash."""

from random import Random
from typing import final

from tidelog.coordinator.raft.membership import Membership
from tidelog.coordinator.raft.messages import Entry, SnapshotMeta
from tidelog.coordinator.raft.ready import HardState, StoredState, Write


@final
class RaftDisk:
    """Keeps synced data. Of a write that a crash interrupts, the first steps are done."""

    def __init__(self, membership: Membership) -> None:
        self.hard_state = HardState()
        self.snapshot = SnapshotMeta(0, 0, membership)
        self.entries: list[Entry] = []

    def stored(self) -> StoredState:
        """Return the state that a start finds."""
        return StoredState(self.hard_state, self.snapshot, tuple(self.entries))

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry on this disk, or of the snapshot's last one."""
        if index == self.snapshot.index:
            return self.snapshot.term
        position = index - self.entries[0].index if self.entries else 0
        if self.entries and 0 <= position < len(self.entries):
            return self.entries[position].term
        return None

    def carry_out(self, write: Write, step_count: int | None = None) -> int:
        """Execute a write, or only its first steps; return the number of its steps."""
        done = 0

        def is_next() -> bool:
            nonlocal done
            done += 1
            return step_count is None or done <= step_count

        if write.hard_state is not None and is_next():
            self.hard_state = write.hard_state
        if write.snapshot is not None and is_next():
            self.snapshot = write.snapshot
        if write.snapshot is not None and is_next():
            self.entries = []
        if write.entries and is_next():
            first = write.entries[0].index
            while self.entries and self.entries[-1].index >= first:
                self.entries.pop()
        for entry in write.entries:
            if is_next():
                assert not self.entries or self.entries[-1].index == entry.index - 1
                self.entries.append(entry)
        return done

    def tear(self, write: Write, dice: Random) -> None:
        """Crash during a write."""
        self.carry_out(write, dice.randrange(len(write.entries) + 5))

    def lose_end(self, dice: Random) -> None:
        """Lose data that a sound disk does not lose: the last entries, term and vote."""
        del self.entries[dice.randrange(len(self.entries) + 1) :]
        self.hard_state = HardState()

    def compact(self, snapshot: SnapshotMeta, keep_entries: int) -> None:
        """Keep a snapshot of the own state machine, and truncate the log before it."""
        self.snapshot = snapshot
        first = snapshot.index - keep_entries + 1
        self.entries = [entry for entry in self.entries if entry.index >= first]
