"""Browsing messages without receiving them.

Pure: no clock, no I/O.
"""

from collections.abc import Iterator
from typing import Final

from tidelog.queue_layer.state.message_state import MessageStatus
from tidelog.queue_layer.state.queue_state import QueueState, StatefulPiece
from tidelog.wire.messages.queues import MessageState, PeekedRun

RUNS_BROWSED_MAX: Final = 10_000
"""Maximum runs of one call, in any state, so that other requests do not wait long."""
OFFSETS_BROWSED_MAX: Final = 100_000
"""Maximum offsets of one call where each message is checked for being blocked by its group."""
_OFFSETS_AT_ONCE: Final = 1_000
"""Offsets that are checked before the next test of the limits."""


def peek(
    state: QueueState, states: frozenset[MessageState], from_offset: int, *, max_messages: int
) -> tuple[list[PeekedRun], int | None]:
    """Return messages in these states from an offset on, and the next offset.

    Args:
        state: Current state.
        states: States of messages; all, if it is empty.
        from_offset: Any offset.
        max_messages: Maximum number; fewer are returned if very many are in other states.
    """
    found: list[PeekedRun] = []
    left = max_messages
    may_be_blocked = state.order is not None and state.order.needs_all_records
    offsets_end = max(from_offset, state.low_water_mark) + OFFSETS_BROWSED_MAX
    for number, (first, end, found_in, status) in enumerate(_walk(state, from_offset)):
        if number >= RUNS_BROWSED_MAX or (may_be_blocked and first >= offsets_end):
            return found, first
        if states and found_in not in states:
            continue
        if not left:
            return found, first
        count = min(end - first, left)
        found.append(_seen(first, count, found_in, status=status))
        left -= count
        if count < end - first:
            return found, first + count
    return found, None


def _seen(first: int, count: int, found_in: MessageState, *, status: MessageStatus) -> PeekedRun:
    is_waited_for = found_in in (MessageState.IN_FLIGHT, MessageState.DELAYED)
    return PeekedRun(
        first,
        count,
        found_in,
        status.receive_count,
        status.visible_at_ms if is_waited_for else 0,
        status.holder if found_in is MessageState.IN_FLIGHT else "",
        status.reason,
    )


def _walk(state: QueueState, from_offset: int) -> Iterator[StatefulPiece]:
    order = state.order
    known_end = max(state.cursor, state.unreceived.end)
    for first, end, found_in, status in state.pieces(from_offset, known_end):
        if found_in is not MessageState.VISIBLE or order is None or not order.needs_all_records:
            yield first, end, found_in, status
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
