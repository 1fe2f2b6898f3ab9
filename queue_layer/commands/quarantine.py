"""Messages that cannot be read at the moment: they, and what waits for them, are not offered.

Pure: no clock, no I/O. Nothing of this is in the journal, for it is about one replica of the
records, and passes when that is mended.
"""

from collections.abc import Iterator

from tidelog.queue_layer.state.queue_state import QueueState
from tidelog.wire.messages.queues import MessageState


def hold(fold: QueueState, first: int, end: int) -> None:
    """Let the order take the visible messages of a range for invisible."""
    if fold.order is not None:
        for piece_first, piece_end, _ in _visible(fold, first, end):
            fold.order.on_invisible(piece_first, piece_end, is_leased=False)


def let_go(fold: QueueState, first: int, end: int) -> None:
    """Let the order take the visible messages of a range for what they are."""
    if fold.order is not None:
        for piece_first, piece_end, since_ms in _visible(fold, first, end):
            # What became visible only after it was held is offered already.
            fold.order.on_invisible(piece_first, piece_end, is_leased=False)
            fold.order.on_visible(piece_first, piece_end, since_ms)


def _visible(fold: QueueState, first: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield which messages of a range are visible, and since when."""
    for piece_first, piece_end, status in fold.runs.pieces(first, min(end, fold.cursor)):
        if fold.runs.state(status) is MessageState.VISIBLE:
            yield piece_first, piece_end, status.visible_at_ms
    for at, stop in fold.fresh.messages(max(first, fold.cursor), min(end, fold.fresh.end)):
        visible_from = at
        for piece_first, piece_end, _ in fold.fresh.delayed(at, stop):
            if visible_from < piece_first:
                yield visible_from, piece_first, 0
            visible_from = piece_end
        if visible_from < stop:
            yield visible_from, stop, 0
