"""Looking at messages without taking them.

Pure: no clock, no I/O.
"""

from collections.abc import Iterator
from typing import Final

from tidelog.queue_layer.state.message_status import SKIPPED, Kind, MessageStatus
from tidelog.queue_layer.state.pending_dead_letters import DeadLetters, MoveBatch
from tidelog.queue_layer.state.queue_state import QueueState
from tidelog.wire.messages.queues import MessageState, Run, SeenRun

RUNS_LOOKED_AT_MAX: Final = 10_000
"""However few of them are of the states that are wanted, so that nobody else waits long."""
OFFSETS_LOOKED_AT_MAX: Final = 100_000
"""The same, where each message has to be looked at: whether others of its group block it."""
_OFFSETS_AT_ONCE: Final = 1_000
"""Of those, so many are looked at before it is asked whether that is enough."""

_Seen = tuple[int, int, MessageState, MessageStatus]


def look(
    fold: QueueState, states: frozenset[MessageState], from_offset: int, *, max_messages: int
) -> tuple[list[SeenRun], int | None]:
    """Return messages in these states from an offset on, and where to go on.

    Args:
        fold: As of now.
        states: All, if it is empty.
        from_offset: Any.
        max_messages: No more than so many; fewer if very many are of other states.
    """
    found: list[SeenRun] = []
    left = max_messages
    may_be_blocked = fold.order is not None and fold.order.needs_all_records
    offsets_end = max(from_offset, fold.low_water_mark) + OFFSETS_LOOKED_AT_MAX
    for number, (first, end, state, status) in enumerate(_walk(fold, from_offset)):
        if number >= RUNS_LOOKED_AT_MAX or (may_be_blocked and first >= offsets_end):
            return found, first
        if states and state not in states:
            continue
        if not left:
            return found, first
        count = min(end - first, left)
        found.append(_seen(first, count, state, status=status))
        left -= count
        if count < end - first:
            return found, first + count
    return found, None


def statuses(fold: QueueState, runs: list[Run]) -> Iterator[tuple[int, int, MessageStatus]]:
    """Yield first offset, count and status of messages that are not done."""
    for first, count in runs:
        for piece_first, piece_end, status in fold.runs.pieces(first, first + count):
            yield piece_first, piece_end - piece_first, status
        start = max(first, fold.cursor)
        if start < first + count:
            yield start, first + count - start, SKIPPED


def dead_letters(fold: QueueState, batch: MoveBatch) -> list[DeadLetters]:
    """Return what is known of messages that are to be moved, in their order."""
    return [
        DeadLetters(
            first,
            count,
            status.receive_count,
            status.first_received_ms,
            status.last_received_ms,
            status.reason,
        )
        for first, count, status in statuses(fold, batch.runs)
    ]


def _seen(first: int, count: int, state: MessageState, *, status: MessageStatus) -> SeenRun:
    is_waited_for = state in (MessageState.LEASED, MessageState.DELAYED)
    return SeenRun(
        first,
        count,
        state,
        status.receive_count,
        status.visible_at_ms if is_waited_for else 0,
        status.holder if state is MessageState.LEASED else "",
        status.reason,
    )


def _walk(fold: QueueState, from_offset: int) -> Iterator[_Seen]:
    order = fold.order
    for first, end, state, status in _walk_unblocked(fold, from_offset):
        if state is not MessageState.VISIBLE or order is None or not order.needs_all_records:
            yield first, end, state, status
            continue
        at = first
        while at < end:
            stop = min(end, at + _OFFSETS_AT_ONCE)
            for blocked_first, blocked_end in order.blocked(at, stop):
                if at < blocked_first:
                    yield at, blocked_first, MessageState.VISIBLE, status
                yield blocked_first, blocked_end, MessageState.BLOCKED, status
                at = blocked_end
            if at < stop:
                yield at, stop, MessageState.VISIBLE, status
            at = stop


def _walk_unblocked(fold: QueueState, from_offset: int) -> Iterator[_Seen]:
    for first, end, status in fold.runs.pieces(from_offset, fold.cursor):
        yield first, end, fold.runs.state(status), status
    at = max(from_offset, fold.cursor)
    for message_first, message_end in fold.fresh.messages(at, fold.fresh.end):
        at = message_first
        for first, end, deliver_at_ms in fold.fresh.delayed(at, message_end):
            if at < first:
                yield at, first, MessageState.VISIBLE, SKIPPED
            delayed = MessageStatus(Kind.WAITING, deliver_at_ms)
            yield first, end, MessageState.DELAYED, delayed
            at = end
        if at < message_end:
            yield at, message_end, MessageState.VISIBLE, SKIPPED
