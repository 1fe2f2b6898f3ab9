"""Settlements of watched messages, from all queue objects of a client.

Pure: no clock, no I/O. Only watched messages are kept, so memory is bounded by the messages that
workers have at a time.
"""

from collections.abc import Callable, Iterable
from typing import Final, final

from tidelog.wire.messages.queues import SettleAction

Place = tuple[int, int, bytes]
"""As `ReceivedPlace`, but a plain tuple is made at a fraction of the cost."""
_KEEPING: Final = (SettleAction.EXTEND, SettleAction.CHANGE_VISIBILITY)
"""Actions after which messages are still leased, or as released as before."""


@final
class SettledMessages:
    """Shared by all queues of a client: a handle may be settled through another `Queue` object."""

    def __init__(self) -> None:
        """Start without watched messages."""
        self._watched: dict[Place, SettleAction | None] = {}
        self._callbacks: dict[Place, Callable[[SettleAction], None]] = {}

    def watch(self, place: Place, on_settled: Callable[[SettleAction], None] | None = None) -> None:
        """Start recording the settlement of this message; call `on_settled` with it."""
        self._watched[place] = None
        if on_settled is not None:
            self._callbacks[place] = on_settled

    def forget(self, place: Place) -> SettleAction | None:
        """Stop watching a message; return its last settlement, `None` without one."""
        self._callbacks.pop(place, None)
        return self._watched.pop(place, None)

    def note(
        self, partition: int, receipt: bytes, offsets: Iterable[int], *, action: SettleAction
    ) -> None:
        """Record that messages of one receive were settled; an extension does not count."""
        if action in _KEEPING or not self._watched:
            return
        for offset in offsets:
            place = (partition, offset, receipt)
            if place in self._watched:
                self._watched[place] = action
                on_settled = self._callbacks.get(place)
                if on_settled is not None:
                    on_settled(action)

    def action_of(self, place: Place) -> SettleAction | None:
        """Return the last settlement of a watched message, `None` without one."""
        return self._watched.get(place)
