"""Snapshots of a queue partition: the whole state as entries, and back.

Pure: no clock, no I/O. A snapshot is as many entries as it needs, so that none of them is above the
limit of a record. It is valid once its last entry is there.
"""

from collections.abc import Iterable, Iterator
from typing import Final, final

from msgspec.structs import replace

from tidelog.queue_layer.state.message_runs import Piece
from tidelog.queue_layer.state.message_state import MessageStatus, SnapshotState
from tidelog.queue_layer.state.redrive_state import Redrive, Redrives
from tidelog.wire.messages.queue_journal import (
    AnyEntry,
    Attempt,
    SnapshotEnded,
    SnapshotMoreAttempts,
    SnapshotMoreMoves,
    SnapshotMoves,
    SnapshotRun,
    SnapshotRuns,
    SnapshotStarted,
)
from tidelog.wire.messages.queues import Run

SNAPSHOT_PARTS: Final = (SnapshotMoreMoves, SnapshotMoreAttempts, SnapshotRuns, SnapshotEnded)
"""Entries after the first one of a snapshot."""
RUNS_PER_PART: Final = 5_000
"""Maximum runs of a part: at some 40 bytes each, and at most 82, far below the limit of a record.
"""
TEXT_BYTES_PER_PART: Final = 64 * 1024
"""Maximum bytes of holders and reasons in a part, plus one pair of them."""
STATE_BYTES_PER_PART: Final = 128 * 1024
"""Maximum bytes of moves or attempts in a part; one of them may come on top."""
_RUN_BYTES: Final = 19
"""Maximum bytes of a first offset and a count."""
_STATE_BYTES: Final = 64
"""Maximum bytes of an attempt, a batch of moves or a target, in addition to the runs."""
BYTES_SINCE_MIN: Final = 512 * 1024
"""Minimum journal bytes between snapshots. A receive of consecutive messages and their deletion
take some 60 bytes, so loading that much costs a new leader about half a second."""

_PAIR_BYTES: Final = 11
"""Maximum bytes of a pair of texts, in addition to the texts."""


def bytes_between_snapshots(snapshot_bytes: int) -> int:
    """Return the bytes by which the journal grows before it gets another snapshot.

    It is half the size of the snapshot, and at least 512 KiB. So at most two thirds of
    all writes are snapshots. Their bytes cost a tenth of those of other entries, to make and to
    load, and a new leader serves no requests until it has loaded all.
    """
    return max(BYTES_SINCE_MIN, snapshot_bytes // 2)


def snapshot_entries(
    started: SnapshotStarted, runs: Iterable[Piece], *, now_ms: int
) -> Iterator[AnyEntry]:
    """Yield a whole snapshot: `started`, in as many entries as it needs, and all runs."""
    yield from started_in_parts(started)
    run_count = 0
    for part in runs_in_parts(runs, now_ms=now_ms, next_lease_id=started.next_lease_id):
        run_count += len(part.runs)
        yield part
    yield SnapshotEnded(run_count)


def started_in_parts(
    started: SnapshotStarted,
) -> Iterator[SnapshotStarted | SnapshotMoreMoves | SnapshotMoreAttempts]:
    """Yield the start of a snapshot, as one entry wherever that is small enough."""
    moves, *more_moves = list(_cut_moves(started.moves)) or [[]]
    attempts, *more_attempts = list(_cut_attempts(started.attempts)) or [[]]
    yield replace(started, moves=moves, attempts=attempts)
    yield from map(SnapshotMoreMoves, more_moves)
    yield from map(SnapshotMoreAttempts, more_attempts)


def _cut_moves(moves: list[SnapshotMoves]) -> Iterator[list[SnapshotMoves]]:
    part: list[SnapshotMoves] = []
    part_bytes = 0
    for chain in moves:
        left = list(zip(chain.batches, chain.redrives or [0] * len(chain.batches), strict=True))
        left.reverse()
        while True:
            if part_bytes > STATE_BYTES_PER_PART:
                yield part
                part, part_bytes = [], 0
            batches: list[list[Run]] = []
            redrives: list[int] = []
            part_bytes += _STATE_BYTES
            while left and part_bytes <= STATE_BYTES_PER_PART:
                runs, redrive = left.pop()
                batches.append(runs)
                redrives.append(redrive)
                part_bytes += _STATE_BYTES + _RUN_BYTES * len(runs)
            part.append(replace(chain, batches=batches, redrives=redrives))
            if not left:
                break
    if part:
        yield part


def _cut_attempts(attempts: list[Attempt]) -> Iterator[list[Attempt]]:
    part: list[Attempt] = []
    part_bytes = 0
    for attempt in attempts:
        part.append(attempt)
        part_bytes += _STATE_BYTES + _RUN_BYTES * len(attempt.runs)
        if part_bytes > STATE_BYTES_PER_PART:
            yield part
            part, part_bytes = [], 0
    if part:
        yield part


def runs_in_parts(
    runs: Iterable[Piece], *, now_ms: int, next_lease_id: int
) -> Iterator[SnapshotRuns]:
    """Yield runs, which ascend, as entries for a snapshot of this time."""
    part: list[SnapshotRun] = []
    texts: dict[tuple[str, str], int] = {}
    at, text_bytes = 0, 0
    for first, end, status in runs:
        pair = (status.holder, status.reason)
        if pair not in texts:
            texts[pair] = len(texts)
            text_bytes += _PAIR_BYTES + sum(len(text.encode()) for text in pair)
        is_received = status.receive_count > 0
        part.append(
            SnapshotRun(
                first - at,
                end - first,
                status.stored,
                # A time of unreceived messages may be years from now, or unset.
                status.visible_at_ms - (now_ms if is_received else 0),
                status.receive_count,
                now_ms - status.first_received_ms if is_received else 0,
                now_ms - status.last_received_ms if is_received else 0,
                next_lease_id - status.lease_id,
                texts[pair],
            )
        )
        at = end
        if len(part) == RUNS_PER_PART or text_bytes > TEXT_BYTES_PER_PART:
            yield SnapshotRuns(list(texts), part)
            part, texts, text_bytes = [], {}, 0
    if part:
        yield SnapshotRuns(list(texts), part)


@final
class SnapshotReader:
    """Collects the entries of one snapshot."""

    def __init__(self, started: SnapshotStarted, now_ms: int) -> None:
        self.started = started
        self.runs: list[Piece] = []
        self.moves = list(started.moves)
        self.attempts = list(started.attempts)
        self._now_ms = now_ms
        self._at = 0

    def add(self, part: SnapshotMoreMoves | SnapshotMoreAttempts | SnapshotRuns) -> None:
        """Add the next part."""
        match part:
            case SnapshotMoreMoves():
                self.moves += part.moves
            case SnapshotMoreAttempts():
                self.attempts += part.attempts
            case SnapshotRuns():
                self._add_runs(part)

    def _add_runs(self, part: SnapshotRuns) -> None:
        for run in part.runs:
            first = self._at + run.gap
            self._at = first + run.count
            is_received = run.receive_count > 0
            holder, reason = part.texts[run.text]
            status = MessageStatus(
                SnapshotState(run.kind),
                run.visible_in_ms + (self._now_ms if is_received else 0),
                run.receive_count,
                self._now_ms - run.first_received_ago_ms if is_received else 0,
                self._now_ms - run.last_received_ago_ms if is_received else 0,
                self.started.next_lease_id - run.lease_ago,
                holder,
                reason,
            )
            self.runs.append((first, self._at, status))

    def is_complete(self, ended: SnapshotEnded) -> bool:
        """Return whether all parts were there."""
        return len(self.runs) == ended.run_count

    def redrives(self) -> Redrives:
        """Return the redrives that the state remembers."""
        latest = self.started.redrive
        kept = [*self.started.earlier_redrives, *([] if latest is None else [latest])]
        return Redrives(Redrive.from_snapshot(each) for each in kept)
