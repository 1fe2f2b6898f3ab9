"""The one write that is on its way to the disk.

Pure: no clock, no I/O; time comes as ticks.

Changes during a write wait for the next one. So one sync serves all inputs that arrived meanwhile,
and an acknowledgement can only be about one write.
"""

from typing import final

from tidelog.coordinator.raft.hard_state import HardStateGate
from tidelog.coordinator.raft.log import RaftLog
from tidelog.coordinator.raft.ready import Write


@final
class PendingWrite:
    """The write under way, if any, and the content of the next one."""

    def __init__(self, hard_state: HardStateGate, log: RaftLog, max_ticks: int) -> None:
        """Begin without a write; one that takes `max_ticks` is stuck."""
        self._hard_state = hard_state
        self._log = log
        self._max_ticks = max_ticks
        self._write: Write | None = None
        self._ticks = 0

    @property
    def is_stuck(self) -> bool:
        """The disk does not answer, or is full: what is said here may never be durable."""
        return self._ticks >= self._max_ticks

    def tick(self) -> None:
        """Count a tick."""
        if self._write is not None:
            self._ticks += 1

    def begin(self) -> Write | None:
        """Return the next write; `None` during a write, or if the disk has everything."""
        if self._write is not None:
            return None
        hard_state = self._hard_state.unsynced()
        snapshot = self._log.snapshot if self._log.is_snapshot_unsynced else None
        entries = self._log.unsynced()
        if hard_state is None and snapshot is None and not entries:
            return None
        self._write = Write(hard_state, snapshot, entries, self._log.last)
        return self._write

    def end(self, write: Write) -> bool:
        """Record that a write is durable; return whether more of the log is durable than before."""
        assert write is self._write, "there is one write at a time"
        self._write = None
        self._ticks = 0
        if write.hard_state is not None:
            self._hard_state.synced(write.hard_state)
        durable_index = self._log.durable_index
        self._log.synced(write.last, write.snapshot)
        return self._log.durable_index > durable_index
