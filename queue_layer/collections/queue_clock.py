"""Queue clock: the time of one partition of a queue, from the used times and the broker's time.

Pure: no clock, no I/O. The broker's time goes by elapsed time, so a lease takes as long as it
should. After an earlier leader whose clock was ahead, the times in the journal are ahead as well.
The time of the queue then keeps its lead and loses it slowly: it neither goes back nor stands
still.
"""

from typing import Final, final

LEAD_LOSS: Final = 1 / 200
"""Loss of lead for each unit of elapsed time: a lease of 1,000 s takes at most 5 s longer."""


@final
class QueueClock:
    """The time of a queue partition, which never goes back.

    Only its speed depends on this object, which is not replicated: the journal has the times.
    """

    __slots__ = ("_lead_ms", "_seen_ms")

    def __init__(self) -> None:
        """Start without a lead."""
        self._lead_ms = 0.0
        self._seen_ms = 0
        """The broker's time at the last call."""

    def time(self, now_ms: int, *, used_ms: int) -> int:
        """Return the time of the queue in Unix milliseconds.

        Args:
            now_ms: The broker's time.
            used_ms: The largest time used so far, by any leader.
        """
        passed_ms, self._seen_ms = max(0, now_ms - self._seen_ms), now_ms
        self._lead_ms = max(0.0, self._lead_ms - passed_ms * LEAD_LOSS)
        time_ms = now_ms + int(self._lead_ms)
        if time_ms < used_ms:
            self._lead_ms = float(used_ms - now_ms)
            return used_ms
        return time_ms
