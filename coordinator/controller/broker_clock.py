"""The clock of a broker: the agreed time of the cluster in place of its own wall clock.

Shell around `coordinator.metadata.cluster_clock.BrokerTime`. `BrokerLifecycle` reports the answers
to heartbeats here. All parts of a broker read this clock through `Env.clock`.
"""

from collections.abc import Mapping
from typing import final

from tidelog.coordinator.metadata.cluster_clock import CLOCK_SKEW_MAX_MS, BrokerTime
from tidelog.wire.env.env import Clock, Probe
from tidelog.wire.env.loop_clock import loop_clock
from tidelog.wire.messages.cluster import BrokerHeartbeatReply

_NOT_AGREED_S = 60.0
"""Time without an agreement after which the broker warns of it."""


@final
class BrokerClock:
    """The agreed time, and the uses of time that need more than that."""

    def __init__(self, wall: Clock, probe: Probe, *, skew_max_ms: int = CLOCK_SKEW_MAX_MS) -> None:
        """Start by the wall clock.

        Args:
            wall: The wall clock of the machine.
            probe: Gets the warnings about clocks.
            skew_max_ms: Maximum difference from the agreed time of a broker that deletes by time.
        """
        self._wall = wall
        self._probe = probe
        self.skew_max_ms = skew_max_ms
        self._is_alone = False
        self._now_s = loop_clock()
        self._steady_at_ms: int | None = None
        """Monotonic time of the last `steady_ms`, `None` if the agreed time may differ since."""
        self._steady_ms = 0
        self._time = BrokerTime(
            wall_ms=wall.now_ms(), now_ms=self._now_ms(), skew_max_ms=skew_max_ms
        )
        self.steady: Clock = _SteadyClock(self)
        """A clock that goes by elapsed time, and follows the agreed time at a bounded rate."""
        self.skews_ms: Mapping[int, int] = {}
        """Difference of each known clock from the agreed time, by node id, as last heard."""
        self._reported_skew_ms = 0
        self._last_agreed_at = self._now_s()
        self._is_missing = False
        """Whether the last report is that there is no agreed time."""

    @property
    def is_alone(self) -> bool:
        """Whether the cluster has no other broker: then the wall clock is the agreed time."""
        return self._is_alone

    @is_alone.setter
    def is_alone(self, is_alone: bool) -> None:
        self._steady_at_ms = None
        self._noted_ms()  # A broker that is alone no longer goes on from its last agreed time.
        self._is_alone = is_alone
        self._noted_ms()

    def now_ms(self) -> int:
        """Return the agreed time in Unix milliseconds; see `wire.env.env.Clock`."""
        if self._is_alone:
            return self._wall.now_ms()
        return self._time.time(now_ms=int(self._now_s() * 1000))

    def steady_ms(self) -> int:
        """Return the steady time in Unix milliseconds, derived once in a millisecond."""
        now_ms = int(self._now_s() * 1000)
        if now_ms == self._steady_at_ms:
            return self._steady_ms
        if self._is_alone:
            steady_ms = self._time.alone(wall_ms=self._wall.now_ms(), now_ms=now_ms)
        else:
            steady_ms = self._time.steady(now_ms=now_ms)
        self._steady_at_ms, self._steady_ms = now_ms, steady_ms
        return steady_ms

    def _noted_ms(self) -> int:
        """Record the wall clock of a broker that is alone; return monotonic time."""
        now_ms = int(self._now_s() * 1000)
        if self._is_alone:
            self._time.alone(wall_ms=self._wall.now_ms(), now_ms=now_ms)
        return now_ms

    def _now_ms(self) -> int:
        """Return monotonic time."""
        return int(self._now_s() * 1000)

    def wall_ms(self) -> int:
        """Return the wall clock of this machine in Unix milliseconds."""
        return self._wall.now_ms()

    def known_ms(self) -> int | None:
        """Return the agreed time, also if no majority agrees any more; `None` if none ever did."""
        now_ms = self._noted_ms()
        return self._time.time(now_ms=now_ms) if self._time.is_known else None

    def deletion_ms(self) -> int | None:
        """Return the time that decides about deletion by time, in Unix milliseconds.

        `None`: nothing may be deleted by time, because this clock is wrong, or there is no agreed
        time.
        """
        now_ms = self._noted_ms()
        return self._time.deletion_time(wall_ms=self._wall.now_ms(), now_ms=now_ms)

    def answered(self, reply: BrokerHeartbeatReply, *, sent_ms: int) -> None:
        """Record the answer to a heartbeat that was sent at `sent_ms` of monotonic time."""
        self._steady_at_ms = None
        self.skews_ms = {each.node_id: each.skew_ms for each in reply.clock_skews}
        if not self._is_alone:
            self._time.answered(
                reply.agreed_ms,
                sent_ms=sent_ms,
                now_ms=self._now_ms(),
                controller_ms=reply.controller_ms,
            )
        self._report()

    def _report(self) -> None:
        """Report changes that an operator must know."""
        now_ms = self._noted_ms()
        skew_ms = self._time.skew(wall_ms=self._wall.now_ms(), now_ms=now_ms)
        if skew_ms is None:
            silent_s = self._now_s() - self._last_agreed_at
            if silent_s >= _NOT_AGREED_S and not self._is_missing:
                self._is_missing = True
                self._probe("time_not_agreed", severity="warning", for_s=int(silent_s))
            return
        self._last_agreed_at = self._now_s()
        if self._is_missing:
            self._is_missing = False
            self._probe("time_agreed", skew_ms=skew_ms)
        reported_ms, limit_ms = self._reported_skew_ms, self.skew_max_ms
        if abs(skew_ms) <= limit_ms:
            self._reported_skew_ms = 0
            if reported_ms:
                self._probe("clock_in_bounds", skew_ms=skew_ms, clock_skew_max_ms=limit_ms)
        elif not reported_ms or abs(skew_ms - reported_ms) > limit_ms:
            self._reported_skew_ms = skew_ms
            self._probe(
                "clock_skewed", severity="warning", skew_ms=skew_ms, clock_skew_max_ms=limit_ms
            )


@final
class _SteadyClock:
    """The steady time of a broker as a clock."""

    __slots__ = ("now_ms",)

    def __init__(self, clock: BrokerClock) -> None:
        self.now_ms = clock.steady_ms
        """Returns the steady time in Unix milliseconds."""
