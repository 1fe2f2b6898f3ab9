"""Doing away with messages that nobody received: cancelled ones, and those that are too old.

Pure: no clock, no I/O.
"""

from collections.abc import Iterator

from queue_layer.entries import AnyEntry, Deleted, Expired, Trimmed
from queue_layer.fold import QueueFold
from queue_layer.message_status import Kind, MessageStatus
from queue_layer.passing import removed
from queue_layer.receiving import joined
from wire.errors import (
    BrokerError,
    InvalidRequestError,
    MessageGoneError,
    ReceiptExpiredError,
)
from wire.queues import MessageState, Refused, Run


def cancel(fold: QueueFold, runs: list[Run]) -> tuple[list[AnyEntry], list[Refused]]:
    """Return what to write about delayed messages that are not to be delivered at all.

    All others are refused: those that can be received, that somebody has, and that are not there.
    """
    cancelled: list[Run] = []
    refused: dict[MessageState | None, list[Run]] = {}
    for first, count in joined(runs):
        at, end = first, first + count
        for piece_first, piece_end, state in _states(fold, first, end):
            if at < piece_first:
                refused.setdefault(None, []).append((at, piece_first - at))
            at = piece_end
            piece = (piece_first, piece_end - piece_first)
            if state is MessageState.DELAYED:
                cancelled.append(piece)
            else:
                refused.setdefault(state, []).append(piece)
        if at < end:
            refused.setdefault(None, []).append((at, end - at))
    return (
        removed(fold, joined(cancelled), Deleted),
        [Refused(joined(found), _why_not(state).to_wire()) for state, found in refused.items()],
    )


def _states(fold: QueueFold, first: int, end: int) -> Iterator[tuple[int, int, MessageState]]:
    """Yield the states of messages in a range that are not done, in order."""
    for piece_first, piece_end, status in fold.runs.pieces(first, min(end, fold.cursor)):
        yield piece_first, piece_end, fold.runs.state(status)
    for at, stop in fold.fresh.messages(max(first, fold.cursor), min(end, fold.fresh.end)):
        visible_from = at
        for piece_first, piece_end, _ in fold.fresh.delayed(at, stop):
            if visible_from < piece_first:
                yield visible_from, piece_first, MessageState.VISIBLE
            yield piece_first, piece_end, MessageState.DELAYED
            visible_from = piece_end
        if visible_from < stop:
            yield visible_from, stop, MessageState.VISIBLE


def _why_not(state: MessageState | None) -> BrokerError:
    match state:
        case None:
            return MessageGoneError(
                "there is no such message: it was delivered and deleted, is cancelled or expired,"
                " or was never sent"
            )
        case MessageState.LEASED:
            return ReceiptExpiredError("somebody has the message; its receipt can delete it")
        case MessageState.DEAD:
            return MessageGoneError("the message is a dead letter")
        case _:
            return InvalidRequestError(
                "the message is not delayed (any more), so it cannot be cancelled; receive and"
                " delete it"
            )


def expire(fold: QueueFold, before: int, retention_ms: int) -> list[AnyEntry]:
    """Return what to write about messages below an offset, all of which are too old.

    What was to be delivered at a time of its own, and was never received, is kept for as long
    from that time on. Dead letters stay: they are on their way.
    """
    expired: list[Run] = []
    for first, end, status in fold.runs.pieces(fold.low_water_mark, min(before, fold.cursor)):
        if status.kind is not Kind.DEAD and not _has_time(fold, status, retention_ms):
            expired.append((first, end - first))
    at, before = fold.cursor, min(before, fold.fresh.end)
    for first, end, time_ms in fold.fresh.timed(at, before):
        if time_ms + retention_ms <= fold.time_ms:
            continue
        if at < first:
            expired.append((at, first - at))
        at = end
    if at < before:
        expired.append((at, before - at))
    return removed(fold, joined(expired), Expired)


def trim(fold: QueueFold, log_start_offset: int) -> list[AnyEntry]:
    """Return what to write about messages that the log has lost, but for those to be moved."""
    if log_start_offset <= fold.low_water_mark:
        return []
    if not fold.moves.has_below(log_start_offset):
        return [Trimmed(log_start_offset)]
    gone = [
        (first, end - first)
        for first, end, status in fold.runs.pieces(fold.low_water_mark, log_start_offset)
        if status.kind is not Kind.DEAD
    ]
    if fold.cursor < log_start_offset:
        gone.append((fold.cursor, log_start_offset - fold.cursor))
    return removed(fold, joined(gone), Expired)


def _has_time(fold: QueueFold, status: MessageStatus, retention_ms: int) -> bool:
    # Receiving and returning a message does not make it any younger.
    return status.lease_id == 0 and status.visible_at_ms + retention_ms > fold.time_ms
