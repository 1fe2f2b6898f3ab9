"""Removing messages that were not received: cancelled, expired, trimmed and lost ones.

Pure: no clock, no I/O.
"""

from collections.abc import Iterator
from itertools import chain, islice
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

PIECES_AT_ONCE: Final = 2_000
"""Runs of messages that differ in something, of which each costs something: so many are some tens
of milliseconds."""
MESSAGES_AT_ONCE: Final = 10_000
"""The same where each message costs something."""


class Cancelled(NamedTuple):
    """What became of a part of the messages that were to be cancelled."""

    refused: list[Refused]
    rest: list[Run]
    """Those that were not looked at, to be cancelled next."""


def cancel(state: QueueState, runs: list[Run]) -> tuple[list[AnyEntry], Cancelled]:
    """Return what to write about delayed messages that are not to be delivered at all.

    All others are refused: those that can be received, that somebody has, and that are not there.
    Only some thousand pieces are looked at, the first ones; if they are far behind the cursor,
    maybe none, but then the cursor gets nearer to them.
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
    rest = [
        (max(first, reached), first + count - max(first, reached))
        for first, count in runs
        if first + count > reached
    ]
    errors = [
        Refused(joined(each), _why_not(found_in).to_wire()) for found_in, each in refused.items()
    ]
    return entries, Cancelled(errors, rest)


def _with_gaps(
    state: QueueState, runs: list[Run]
) -> Iterator[tuple[int, int, MessageState | None]]:
    """Yield the states of messages, in order; `None`: they are not there."""
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
    """Return how far to `purge` or `trim` at once, on the way from an offset to another one."""
    return _slice_end(state, first, end, forgets_all=True)


def expiry_end(state: QueueState, first: int, end: int) -> int:
    """Return how far to `expire` at once, on the way from an offset to another one."""
    return _slice_end(state, first, end, forgets_all=False)


def _slice_end(state: QueueState, first: int, end: int, *, forgets_all: bool) -> int:
    # `forgets_all`: it costs nothing to remove all messages (`LogStartAdvanced`, `Purged`).
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
            return ReceiptExpiredError("somebody has the message; its receipt can delete it")
        case MessageState.DEAD:
            return MessageGoneError("the message is a dead letter")
        case _:
            return InvalidRequestError(
                "the message is not delayed (any more), so it cannot be cancelled; receive and"
                " delete it"
            )


def expire(state: QueueState, before: int, retention_ms: int | None) -> list[AnyEntry]:
    """Return what to write about messages below an offset, all of which are too old.

    What was to be delivered at a time of its own, and was never received, is kept for as long
    from that time on. Dead letters stay: they are on their way.
    """
    if retention_ms is None:
        return []
    expired: list[Run] = []
    for first, end, status in state.runs.pieces(state.low_water_mark, min(before, state.cursor)):
        if status.stored is not SnapshotState.DEAD and not _has_time(state, status, retention_ms):
            expired.append((first, end - first))
    at, before = state.cursor, min(before, state.unreceived.end)
    for first, end, time_ms in state.unreceived.timed(at, before):
        if time_ms + retention_ms <= state.time_ms:
            continue
        if at < first:
            expired.append((at, first - at))
        at = end
    if at < before:
        expired.append((at, before - at))
    return removed(state, joined(expired), Expired)


def trim(state: QueueState, log_start_offset: int) -> list[AnyEntry]:
    """Return what to write about messages that the log has lost, but for those to be moved."""
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
    """Return what to write about messages on their way that the log has lost, and how many."""
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
