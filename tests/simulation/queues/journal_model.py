"""Model of a queue partition's journal, message by message; slow and simple.

Pure. It has no runs, snapshots or delivery orders, and so is no copy of the compared code. It
objects to entries that no queue may ever write.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn, final

from tidelog.queue_layer.state.message_state import SnapshotState
from tidelog.wire.messages.queue_journal import (
    AnyEntry,
    DeadLettered,
    Delayed,
    Deleted,
    Expired,
    Extended,
    JournalFrame,
    LogStartAdvanced,
    Moved,
    MoveFailed,
    Purged,
    Received,
    ReceiveRepeated,
    RedriveEnded,
    Redriven,
    RedriveStarted,
    Released,
    Returned,
    Seeked,
    Target,
    TargetChanged,
)
from tidelog.wire.messages.queues import Run

_SOON_MS = 2_000
"""Milliseconds after the last delivery until a leader has decided that a message is dead."""
_LATE_MS = 3_000
"""Milliseconds of further frames of the same leader before that is a violation."""
_REDRIVES_KEPT = 10
"""Redrives of a partition that are remembered, as the documents promise."""


class State(NamedTuple):
    """State of a message that is neither unreceived nor deleted."""

    stored: SnapshotState = SnapshotState.AVAILABLE
    visible_at_ms: int = 0
    receive_count: int = 0
    lease_id: int = 0


@dataclass(slots=True)
class _Chain:
    """Messages that are to be moved to one target."""

    epoch: int = 0
    sequence: int = 0
    offsets: deque[int] = field(default_factory=deque[int])

    def break_off(self) -> None:
        self.epoch, self.sequence = self.epoch + 1, 0

    def pop(self, count: int) -> list[int]:
        self.sequence += count
        return [self.offsets.popleft() for _ in range(count)]


def _offsets(runs: Iterable[Run]) -> list[int]:
    return [offset for first, count in runs for offset in range(first, first + count)]


@final
class JournalModel:
    """All messages of one partition."""

    def __init__(
        self, fail: Callable[[str, str], NoReturn], *, max_deliveries: int | None = None
    ) -> None:
        """Begin before the first entry; `fail` gets the name of a promise, and the reason."""
        self.cursor = 0
        self.open: dict[int, State] = {}
        """Below the cursor, all messages that are not deleted."""
        self.received: dict[tuple[int, int], int] = {}
        """By lease and offset, the receive count of the delivery."""
        self.first_received_ms: dict[int, int] = {}
        self.gone_at: dict[int, float] = {}
        """Time of the first entry for a message's removal, in simulated seconds."""
        self.moved_count = 0
        self._chains: dict[Target, _Chain] = {}
        self._attempts: dict[bytes, list[int]] = {}
        self._redrive_ids: list[bytes] = []
        self._has_redrive = False
        self._time_ms = 0
        self._at = 0.0
        self._low_water_mark = 0
        self._fail = fail
        self._max_deliveries = max_deliveries
        self._late: dict[int, tuple[int, int]] = {}
        """By offset of a message that should be dead, the leader epoch and time of the first frame
        after that."""

    def apply(self, frame: JournalFrame, at: float = 0.0, *, epoch: int = 0) -> None:
        """Apply the next frame, which a leader wrote at `at` (simulated seconds)."""
        self._at = at
        if frame.now_ms < self._time_ms:
            self._fail("JournalIsKept", f"a frame of {frame.now_ms} after one of {self._time_ms}")
        self._time_ms = frame.now_ms
        for entry in frame.entries:
            self._apply(entry)
            mark = min(self.open, default=self.cursor)
            if mark < self._low_water_mark and not isinstance(entry, Seeked):
                self._fail("JournalIsKept", f"{entry} lowers it to {mark}")
            self._low_water_mark = mark
        self._check_last_deliveries(epoch)

    def _check_last_deliveries(self, epoch: int) -> None:
        """Check that messages are dead soon after their last delivery, if the leader can write."""
        if self._max_deliveries is None:
            return
        late: dict[int, tuple[int, int]] = {}
        for offset, state in self.open.items():
            is_exhausted = state.receive_count >= self._max_deliveries
            if not is_exhausted or state.stored is SnapshotState.DEAD:
                continue
            if state.visible_at_ms + _SOON_MS < self._time_ms:
                first = self._late.get(offset, (epoch, self._time_ms))
                late[offset] = first if first[0] == epoch else (epoch, self._time_ms)
                if self._time_ms - late[offset][1] > _LATE_MS:
                    self._fail("DeadInTime", f"{offset} is {state} at {self._time_ms}")
        self._late = late

    @property
    def pending(self) -> dict[Target, list[int]]:
        """Dead letters that are to be moved, in order."""
        return {
            target: list(chain.offsets) for target, chain in self._chains.items() if chain.offsets
        }

    def _apply(self, entry: AnyEntry) -> None:  # noqa: C901, PLR0912  (a branch for each)
        match entry:
            case Received():
                self._receive(entry)
            case ReceiveRepeated():
                for offset in self._attempts[entry.attempt_id]:
                    self._put(offset, entry.visible_at_ms, SnapshotState.IN_FLIGHT)
            case Deleted() | Expired():
                for offset in self._existing(entry.runs, entry):
                    self._gone(offset)
            case Extended():
                for offset in self._existing(entry.runs, entry):
                    if self.open[offset].lease_id != entry.lease_id:
                        self._fail("OneHolder", f"{self.open[offset]} is extended by {entry}")
                    self._put(offset, entry.visible_at_ms, SnapshotState.IN_FLIGHT)
            case Released():
                for offset in self._existing(entry.runs, entry):
                    self._put(offset, entry.visible_at_ms, SnapshotState.AVAILABLE)
            case Returned():
                for offset in self._existing(entry.runs, entry):
                    count = max(0, self.open[offset].receive_count - 1)
                    self._put(offset, entry.visible_at_ms, SnapshotState.AVAILABLE)
                    self.open[offset] = self.open[offset]._replace(receive_count=count)
            case Delayed():
                for first, count, visible_at_ms in entry.runs:
                    self._pass_to(first + count)
                    for offset in range(first, first + count):
                        self.open[offset] = State(visible_at_ms=visible_at_ms)
            case DeadLettered() | Redriven():
                self._die(entry.runs, entry.target, entry)
            case Moved() | MoveFailed():
                self._move(entry)
            case RedriveStarted() | RedriveEnded():
                self._redrive(entry)
            case TargetChanged():
                source = self._chain(entry.source)
                if entry.source != entry.target:
                    self._chain(entry.target).offsets.extend(source.offsets)
                    source.offsets.clear()
                    source.break_off()
            case LogStartAdvanced(offset=end) | Purged(end=end):
                self._pass_to(end)
                self._remove(range(min(self.open, default=end), end))
            case Seeked():
                self._remove(range(self.cursor))
                self.cursor = self._low_water_mark = entry.offset
            case _:
                pass  # This entry changes no message.

    def _receive(self, entry: Received) -> None:
        for offset in self._existing(entry.runs, entry):
            state = self.open[offset]
            if state.visible_at_ms > self._time_ms:
                self._fail("OneHolder", f"{state} at {self._time_ms}, and {entry}")
            count = state.receive_count + 1
            if self._max_deliveries is not None and count > self._max_deliveries:
                self._fail("CountsAreExact", f"{state} may not be handed out again: {entry}")
            self.open[offset] = State(
                SnapshotState.IN_FLIGHT, entry.visible_at_ms, count, entry.lease_id
            )
            self.received[entry.lease_id, offset] = count
            self.first_received_ms.setdefault(offset, self._time_ms)
        if entry.attempt_id is not None:
            self._attempts[entry.attempt_id] = _offsets(entry.runs)

    def _redrive(self, entry: RedriveStarted | RedriveEnded) -> None:
        if isinstance(entry, RedriveEnded):
            self._has_redrive = False
            return
        is_repeated = bool(entry.redrive_id) and entry.redrive_id in self._redrive_ids
        if self._has_redrive or is_repeated:
            self._fail("JournalIsKept", f"a redrive runs, or has run, before {entry}")
        self._has_redrive = True
        self._redrive_ids = [*self._redrive_ids, entry.redrive_id][-_REDRIVES_KEPT:]

    def _die(self, runs: list[Run], target: Target, entry: AnyEntry) -> None:
        for offset in self._existing(runs, entry):
            self._put(offset, 0, SnapshotState.DEAD)
        self._chain(target).offsets.extend(_offsets(runs))

    def _move(self, entry: Moved | MoveFailed) -> None:
        chain = self._chain(entry.target)
        is_next = (chain.epoch, chain.sequence) == (entry.epoch, entry.sequence)
        if not is_next or entry.count > len(chain.offsets):
            return  # A late entry names messages that are gone.
        for offset in chain.pop(entry.count):
            if isinstance(entry, Moved):
                self.moved_count += 1
                self._gone(offset)
            else:
                self._put(offset, entry.visible_at_ms or self._time_ms, SnapshotState.AVAILABLE)
        if isinstance(entry, MoveFailed):
            chain.break_off()

    def _existing(self, runs: list[Run], entry: AnyEntry) -> list[int]:
        """Return messages, all of which must exist, and not be dead."""
        offsets = _offsets(runs)
        for first, count in runs:
            self._pass_to(first + count)
        for offset in offsets:
            state = self.open.get(offset)
            if state is None:
                self._fail("DeletedIsGone", f"{offset} is done before {entry}")
            if state.stored is SnapshotState.DEAD:
                self._fail("DeadOnce", f"{offset} is dead before {entry}")
        return offsets

    def _put(self, offset: int, visible_at_ms: int, stored: SnapshotState) -> None:
        self.open[offset] = self.open[offset]._replace(stored=stored, visible_at_ms=visible_at_ms)

    def _pass_to(self, end: int) -> None:
        for offset in range(self.cursor, end):
            self.open[offset] = State()
        self.cursor = max(self.cursor, end)

    def _remove(self, offsets: range) -> None:
        for chain in self._chains.values():
            kept = deque(offset for offset in chain.offsets if offset not in offsets)
            if len(kept) < len(chain.offsets):
                chain.offsets = kept
                chain.break_off()
        for offset in [offset for offset in self.open if offset in offsets]:
            self._gone(offset)

    def _gone(self, offset: int) -> None:
        del self.open[offset]
        self.gone_at.setdefault(offset, self._at)

    def _chain(self, target: Target) -> _Chain:
        return self._chains.setdefault((target[0], target[1]), _Chain())
