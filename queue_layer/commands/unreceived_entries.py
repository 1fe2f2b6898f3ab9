"""Journal entries about unreceived messages that the cursor passes.

Pure: no clock, no I/O. Passed messages keep their times, and chunks become done. All entries,
however many, are in the order of offsets. So a new leader that finds only a prefix of them knows
all times of the messages that the cursor has passed by then.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import NamedTuple

from tidelog.queue_layer.frames import RUNS_PER_ENTRY, is_one_frame
from tidelog.queue_layer.state.queue_state import QueueState
from tidelog.wire.messages.queue_journal import AnyEntry, Delayed, Deleted, Expired
from tidelog.wire.messages.queues import Run

_Removal = type[Deleted] | type[Expired]


class _Piece(NamedTuple):
    """Messages that need an entry."""

    kind: _Removal | type[Delayed]
    run: Run
    time_ms: int = 0
    """Time at which deferred messages become visible."""


def passed(state: QueueState, runs: list[Run], decided: Sequence[AnyEntry]) -> list[AnyEntry]:
    """Return the entries about messages that the cursor passes before unreceived ones change.

    Args:
        state: Current state.
        runs: Messages that change, ascending.
        decided: All other entries of the decision. If they do not fit into one frame with these,
            the messages that change keep their times too, until the frame that changes them: an
            earlier frame may move the cursor past them.
    """
    entries = list(_entries(_between(state, runs)))
    if runs and state.unreceived.has_times and not is_one_frame([*entries, *decided]):
        first, count = runs[-1]
        entries = list(_entries(_of_unreceived(state, state.cursor, first + count)))
    return entries


def removed(state: QueueState, runs: list[Run], kind: _Removal) -> list[AnyEntry]:
    """Return the entries that remove messages, unreceived ones among them.

    The runs ascend.
    """
    return list(_entries(_removed(state, runs, kind)))


def removed_in_part(
    state: QueueState, runs: list[Run], kind: _Removal, *, pieces_max: int
) -> tuple[list[AnyEntry], int | None]:
    """Return as `removed`, but stop after some pieces; return where, `None` at the end."""
    pieces = list(islice(_removed(state, runs, kind), pieces_max + 1))
    if len(pieces) <= pieces_max:
        return list(_entries(pieces)), None
    first, count = pieces[-2].run
    return list(_entries(pieces[:-1])), first + count


def _removed(state: QueueState, runs: list[Run], kind: _Removal) -> Iterator[_Piece]:
    at = state.cursor
    for first, count in runs:
        yield from _of_unreceived(state, at, first)
        yield _Piece(kind, (first, count))
        at = max(at, first + count)


def _between(state: QueueState, runs: list[Run]) -> Iterator[_Piece]:
    at = state.cursor
    for first, count in runs:
        yield from _of_unreceived(state, at, first)
        at = max(at, first + count)


def _of_unreceived(state: QueueState, first: int, end: int) -> Iterator[_Piece]:
    """Yield how skipped records differ from messages without any field."""
    if first >= end:
        return
    timed = (_Piece(Delayed, (a, b - a), ms) for a, b, ms in state.unreceived.timed(first, end))
    if not state.unreceived.chunk_count:
        yield from timed
        return
    chunks = (_Piece(Deleted, (a, b - a)) for a, b in state.unreceived.chunks(first, end))
    yield from merge(timed, chunks, key=lambda piece: piece.run)


def _entries(pieces: Iterable[_Piece]) -> Iterator[AnyEntry]:
    """Yield pieces as entries, in their order."""
    found: list[_Piece] = []
    for piece in pieces:
        if found and (piece.kind is not found[0].kind or len(found) == RUNS_PER_ENTRY):
            yield _entry(found)
            found = []
        found.append(piece)
    if found:
        yield _entry(found)


def _entry(pieces: list[_Piece]) -> AnyEntry:
    kind = pieces[0].kind
    if kind is Delayed:
        return Delayed([(*piece.run, piece.time_ms) for piece in pieces])
    return kind([piece.run for piece in pieces])
