"""TCP keep-alive: the kernel detects on an idle connection that the other machine is gone.

It uses the settings of `wire.env.real`: after a minute of silence, six probes, ten seconds apart.
While sent data has not arrived the kernel sends no probes; it retransmits the data for a quarter of
an hour.
"""

import errno
import os
from typing import final

from tests.simulation.machine.clock import SimulatedClock
from tests.simulation.machine.link import Link
from tests.simulation.machine.tcp import SimulatedStream

_IDLE_S = 60.0
_INTERVAL_S = 10.0
_QUESTIONS_MAX = 6
_SENDING_MAX_S = 924.0


@final
class KeepAlive:
    """The probes of one end of a connection.

    Invariant: while the connection is good, one event is due.
    """

    def __init__(
        self, clock: SimulatedClock, end: SimulatedStream, *, there: Link, back: Link
    ) -> None:
        """Start probes for `end`."""
        self._clock = clock
        self._end = end
        self._there = there
        self._back = back
        self._question_count = 0
        self._heard_at = clock.now
        clock.call_later(_IDLE_S, self._look)

    def _look(self) -> None:
        end, now = self._end, self._clock.now
        if not end.is_connected:
            return
        unsent_since = end.unsent_since
        if unsent_since is not None:
            self._question_count = 0
            if now - unsent_since >= _SENDING_MAX_S:
                end.break_off(os.strerror(errno.ETIMEDOUT))
            self._clock.call_later(_INTERVAL_S, self._look)
            return
        ask_at = max(self._heard_at, end.heard_at) + _IDLE_S
        if now < ask_at:
            self._question_count = 0
            self._clock.call_at(ask_at, self._look)
        elif self._question_count == _QUESTIONS_MAX:
            end.break_off(os.strerror(errno.ETIMEDOUT))
        else:
            self._question_count += 1
            self._there.carry(self._asked)
            self._clock.call_later(_INTERVAL_S, self._look)

    def _asked(self) -> None:
        if self._end.other.is_known:
            self._back.carry(self._answered)
        else:
            self._end.other.send_reset()

    def _answered(self) -> None:
        self._heard_at = self._clock.now
