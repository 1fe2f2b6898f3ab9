"""What has become of messages that somebody watches, whoever settled them, and by what.

Pure: no clock, no I/O. Only what is watched is remembered, so memory is as large as what workers
have at a time.
"""

from collections.abc import Iterable
from typing import final

from tidelog.client.queue.receive.receipt_handle import ReceivedPlace
from tidelog.wire.messages.queues import SettleAction


@final
class SettledMessages:
    """One for all queues of a client: a handle may be settled through another `Queue` object."""

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._watched: dict[ReceivedPlace, SettleAction | None] = {}

    def watch(self, place: ReceivedPlace) -> None:
        """Remember from now on what becomes of this message."""
        self._watched[place] = None

    def forget(self, place: ReceivedPlace) -> None:
        """Watch it no longer."""
        self._watched.pop(place, None)

    def note(
        self, partition: int, receipt: bytes, offsets: Iterable[int], *, action: SettleAction
    ) -> None:
        """Take note that messages of one receive were settled; what is extended is not."""
        if action is SettleAction.EXTEND or not self._watched:
            return
        for offset in offsets:
            place = ReceivedPlace(partition, offset, receipt)
            if place in self._watched:
                self._watched[place] = action

    def action_of(self, place: ReceivedPlace) -> SettleAction | None:
        """Return what was done last with a message that is watched, `None` if nothing."""
        return self._watched.get(place)
