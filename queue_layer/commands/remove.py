"""Removal of messages without a receive: cancelled, expired, trimmed and lost ones.

Pure: no clock, no I/O.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import chain, islice
from operator import itemgetter
from typing import Final, NamedTuple

from tidelog.queue_layer.commands.receive import joined
from tidelog.queue_layer.commands.unreceived_entries import removed, removed_in_part
from tidelog.queue_layer.state.message_state import MessageStatus, SnapshotState
from tidelog.queue_layer.state.pending_dead_letters import DeadLetterBatch
from tidelog.queue_layer.state.queue_state import QueueState
from tidelog.wire.errors import (
    BrokerError,
    InvalidRequestError,
    MessageGoneError,
    ReceiptExpiredError,
)
from tidelog.wire.messages.queue_journal import (
    AnyEntry,
    Deleted,
    Expired,
    LogStartAdvanced,
    MoveFailed,
)
from tidelog.wire.messages.queues import MessageState, Refused, Run

PIECES_AT_ONCE: Final = 500
"""Maximum runs of different messages in one step, each of which costs something: that is some
milliseconds."""
MESSAGES_AT_ONCE: Final = 1_000
"""Maximum messages in one step where each message costs something."""


class Cancelled(NamedTuple):
    """Result of the cancellation of a part of the messages."""

    refused: list[Refused]
    rest: list[Run]
    """Messages that were not looked at, to be cancelled next."""


def cancel(state: QueueState, runs: list[Run]) -> tuple[list[AnyEntry], Cancelled]:
    """Return the entries that delete delayed messages before their delivery.

    All others are refused: messages that can be received, that are in flight, or that do not exist.
    Only the first few thousand pieces are looked at. If the messages are far after the cursor, that
    may be none of them, but then the cursor gets nearer to them.
    """
    runs = joined(runs)
    found = list(islice(_with_gaps(state, runs), PIECES_AT_ONCE))
    if not found:
        return [], Cancelled([], [])
    reached = found[-1][1]
    cancelled = [(a, b - a) for a, b, found_in in found if found_in is MessageState.DELAYED]
    entries, stopped_at = removed_in_part(
        state, joined(cancelled), Deleted, pieces_max=PIECES_AT_ONCE
    )
    if stopped_at is not None:
        reached = min(reached, stopped_at)
    refused: dict[MessageState | None, list[Run]] = {}
    for first, end, found_in in found:
        if first < reached and found_in is not MessageState.DELAYED:
            refused.setdefault(found_in, []).append((first, min(end, reached) - first))
    begun = bisect_right(runs, reached, key=itemgetter(0))  # No loop over all runs at each step.
    ends = (first + count for first, count in runs[:begun])
    rest = [(reached, end - reached) for end in ends if end > reached] + runs[begun:]
    errors = [
        Refused(joined(each), _why_not(found_in).to_wire()) for found_in, each in refused.items()
    ]
    return entries, Cancelled(errors, rest)


def _with_gaps(
    state: QueueState, runs: list[Run]
) -> Iterator[tuple[int, int, MessageState | None]]:
    """Yield the states of messages, in order; `None`: they do not exist."""
    for first, count in runs:
        at, end = first, first + count
        for piece_first, piece_end, found_in, _ in state.pieces(first, end):
            if at < piece_first:
                yield at, piece_first, None
            yield piece_first, piece_end, found_in
            at = piece_end
        if at < end:
            yield at, end, None


def removal_end(state: QueueState, first: int, end: int) -> int:
    """Return the end of the next step of a `purge` or `trim` between two offsets."""
    return _slice_end(state, first, end, forgets_all=True)


def expiry_end(state: QueueState, first: int, end: int) -> int:
    """Return the end of the next step of an `expire` between two offsets."""
    return _slice_end(state, first, end, forgets_all=False)


def next_open(state: QueueState, offset: int) -> int:
    """Return the first offset from this one on that is unreceived, or of a message."""
    piece = next(state.runs.pieces(offset, state.cursor), None)
    return max(offset, state.cursor) if piece is None else piece[0]


def _slice_end(state: QueueState, first: int, end: int, *, forgets_all: bool) -> int:
    # `forgets_all`: removing all messages costs nothing (`LogStartAdvanced`, `Purged`).
    pieces = chain(
        state.runs.pieces(first, min(end, state.cursor)),
        state.unreceived.timed(max(first, state.cursor), end),
    )
    beyond = next(islice(pieces, PIECES_AT_ONCE, None), None)
    stop = end if beyond is None else beyond[0]
    if state.order is None or not state.order.needs_all_records:
        return stop
    if forgets_all and stop >= state.unreceived.end:
        return stop
    return min(stop, first + MESSAGES_AT_ONCE)


def _why_not(found_in: MessageState | None) -> BrokerError:
    match found_in:
        case None:
            return MessageGoneError(
                "there is no such message: it was delivered and deleted, is cancelled or expired,"
                " or was never sent"
            )
        case MessageState.IN_FLIGHT:
            return ReceiptExpiredError("the message is in flight; its receipt can delete it")
        case MessageState.DEAD:
            return MessageGoneError("the message is a dead letter")
        case _:
            return InvalidRequestError(
                "the message is not delayed (any more), so it cannot be cancelled; receive and"
                " delete it"
            )


def expire(
    state: QueueState, first: int, before: int, *, retention_ms: int
) -> tuple[list[AnyEntry], int | None]:
    """Return the entries for messages between two offsets, all of which are too old.

    A message with its own delivery time that was never received is kept for as long from that time
    on. Dead letters stay: they are being moved. Also return when the first of the kept messages
    expires, in Unix milliseconds; `None` if there is none.
    """
    expired: list[Run] = []
    kept_until_ms: list[int] = []
    start = max(first, state.low_water_mark)
    for at, end, status in state.runs.pieces(start, min(before, state.cursor)):
        if status.stored is SnapshotState.DEAD:
            continue
        if _has_time(state, status, retention_ms):
            kept_until_ms.append(status.visible_at_ms + retention_ms)
        else:
            expired.append((at, end - at))
    at, before = max(start, state.cursor), min(before, state.unreceived.end)
    for run_first, end, time_ms in state.unreceived.timed(at, before):
        if time_ms + retention_ms <= state.time_ms:
            continue
        kept_until_ms.append(time_ms + retention_ms)
        if at < run_first:
            expired.append((at, run_first - at))
        at = end
    if at < before:
        expired.append((at, before - at))
    entries = removed(state, joined(expired), Expired)
    return entries, min(kept_until_ms, default=None)


def trim(state: QueueState, log_start_offset: int) -> list[AnyEntry]:
    """Return the entries for messages deleted from the log, except for pending dead letters."""
    if log_start_offset <= state.low_water_mark:
        return []
    if not state.moves.has_below(log_start_offset):
        return [LogStartAdvanced(log_start_offset)]
    gone = [
        (first, end - first)
        for first, end, status in state.runs.pieces(state.low_water_mark, log_start_offset)
        if status.stored is not SnapshotState.DEAD
    ]
    if state.cursor < log_start_offset:
        gone.append((state.cursor, log_start_offset - state.cursor))
    return removed(state, joined(gone), Expired)


def lost(batch: DeadLetterBatch, log_start_offset: int) -> tuple[list[AnyEntry], int]:
    """Return the entries and the count of pending dead letters that were deleted from the log."""
    gone = [
        (first, min(count, log_start_offset - first))
        for first, count in batch.runs
        if first < log_start_offset
    ]
    count = sum(count for _, count in gone)
    failed = MoveFailed(batch.target, batch.epoch, batch.sequence, count, "", 0)
    return [failed, Expired(gone)], count


def _has_time(state: QueueState, status: MessageStatus, retention_ms: int) -> bool:
    # Receiving and returning a message does not make it any younger.
    return status.lease_id == 0 and status.visible_at_ms + retention_ms > state.time_ms
