"""Cluster clock: the time on which a majority of the clocks agrees, and its use by one broker.

Pure: no clock, no I/O. The controller collects the wall clocks that heartbeats carry
(`ClockTable`), and answers with the agreed time. A broker adds the elapsed monotonic time to it
(`BrokerTime`). Two times are kept apart: the *agreed time* stamps appends and decides about
deletion; the *steady time* of queues follows it at a bounded rate. `docs/decisions/0025-clocks.md`
has the reasons.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, final

from tidelog.coordinator.metadata.broker_sessions import SESSION_MS

CLOCK_SKEW_MAX_MS: Final = 30_000
"""Default of the setting `clock_skew_max_ms`."""
SLEW: Final = 1 / 200
"""Maximum difference of the rate of the steady time from that of elapsed time."""
STEP_AFTER_MS: Final = 600_000
"""Time after which the steady time steps, if it is far from the agreed time for all of that."""
STEP_ALONE_MS: Final = 7_200_000
"""Meaning of "far" for a broker without others, whose wall clock has no witness. With others, it
is `clock_skew_max_ms`."""
_SAMPLE_COUNT: Final = 3
"""Heartbeats by which a clock is read; one that has jumped back is seen after so many."""
_ROUND_TRIP_MAX_MS: Final = 4_000
"""An answer that took longer says too little about the time."""
_CONFIRMED_MS: Final = 60_000
"""An agreed time that was not confirmed for so long decides about no deletion."""


class ClockAgreement(NamedTuple):
    """The agreed time, as the controller knows it."""

    time_ms: int | None
    """Unix milliseconds; `None` while no majority of the clocks agrees."""
    skews_ms: Mapping[int, int]
    """Difference of each known clock from the agreed time, by node id; empty without one."""


class _Sample(NamedTuple):
    offset_ms: int
    """Wall clock of the broker minus monotonic time of the controller."""
    heard_ms: int


def agreed_offset(
    offsets: Collection[int], *, clock_count: int, skew_max_ms: int = CLOCK_SKEW_MAX_MS
) -> int | None:
    """Return the median offset if a majority of the clocks is close to it, else `None`.

    Of an even number, the older one of the two in the middle: records are deleted too late rather
    than too early. So two clocks agree on the older one, or not at all.

    Args:
        offsets: The clocks that are known.
        clock_count: Number of all clocks, those that are not known included.
        skew_max_ms: Maximum distance from the median of a clock that agrees.
    """
    if not offsets:
        return None
    median = sorted(offsets)[(len(offsets) - 1) // 2]
    close_count = sum(abs(each - median) <= skew_max_ms for each in offsets)
    return median if 2 * close_count > clock_count else None


def _is_recent(sample: _Sample, now_ms: int) -> bool:
    return now_ms - sample.heard_ms < SESSION_MS


@final
class ClockTable:
    """The controller's table of the brokers' wall clocks; times are its monotonic milliseconds.

    A heartbeat that the network delays shows a clock that seems to be behind. So a clock counts
    with its latest reading among the last heartbeats, and not before the second one.
    """

    def __init__(self, *, skew_max_ms: int = CLOCK_SKEW_MAX_MS) -> None:
        """Start without clocks."""
        self._skew_max_ms = skew_max_ms
        self._samples: dict[int, list[_Sample]] = {}

    def heard(self, node_id: int, wall_ms: int, *, now_ms: int) -> None:
        """Record the wall clock in a broker's heartbeat, by the time of the heartbeat's arrival."""
        recent = [each for each in self._samples.get(node_id, ()) if _is_recent(each, now_ms)]
        self._samples[node_id] = [*recent, _Sample(wall_ms - now_ms, now_ms)][-_SAMPLE_COUNT:]

    def agreement(self, node_ids: Collection[int], *, now_ms: int) -> ClockAgreement:
        """Return the time on which a majority of some nodes agrees.

        Silent nodes count as clocks that do not agree.

        Args:
            node_ids: All voters, and all brokers that are not fenced: neither a node that starts
                alone nor a minority decides, and a broker that is gone for good prevents nothing.
            now_ms: The time.
        """
        offsets: dict[int, int] = {}
        for node_id in self._samples.keys() & {*node_ids}:
            recent = [each for each in self._samples[node_id] if _is_recent(each, now_ms)]
            if len(recent) > 1:
                offsets[node_id] = max(each.offset_ms for each in recent)
        agreed = agreed_offset(
            offsets.values(), clock_count=len(node_ids), skew_max_ms=self._skew_max_ms
        )
        if agreed is None:
            return ClockAgreement(None, {})
        skews_ms = {node_id: offset - agreed for node_id, offset in sorted(offsets.items())}
        return ClockAgreement(agreed + now_ms, skews_ms)


@final
class BrokerTime:
    """The agreed time and the steady time of one broker.

    `now_ms` is monotonic time, `wall_ms` the broker's wall clock. Before the first agreement, both
    times count on from the wall clock at the start.
    """

    def __init__(self, *, wall_ms: int, now_ms: int, skew_max_ms: int = CLOCK_SKEW_MAX_MS) -> None:
        """Start by the wall clock."""
        self._skew_max_ms = skew_max_ms
        self._offset_ms = wall_ms - now_ms
        """The agreed time minus monotonic time."""
        self._agreed_at_ms: int | None = None
        """Time of the last agreement."""
        self.is_known = False
        """Whether the time is that of an agreement, maybe a former one."""
        self._is_alone = False
        self._steady_offset_ms: float = self._offset_ms
        self._steady_at_ms = now_ms
        self._far_since_ms: int | None = None
        """Time since which the steady time is far from the agreed time."""

    def answered(
        self, agreed_ms: int | None, *, sent_ms: int, now_ms: int, controller_ms: int | None = None
    ) -> None:
        """Record the controller's answer to a heartbeat that was sent at `sent_ms`.

        The answer was given at some time between the two: within this uncertainty the agreed time
        goes on as it was. A broker that starts while no majority agrees counts from
        `controller_ms`, the controller's former agreed time.
        """
        if now_ms - sent_ms > _ROUND_TRIP_MAX_MS:
            return
        if agreed_ms is not None:
            self._is_alone = False
            self._agree(self._within(agreed_ms, sent_ms, now_ms), now_ms)
        elif controller_ms is not None and not self.is_known:
            self._offset_ms = self._within(controller_ms, sent_ms, now_ms)
            self._steady_offset_ms = self._offset_ms
            self.is_known = True

    def _within(self, answered_ms: int, sent_ms: int, now_ms: int) -> int:
        """Return the offset next to the present one that the answer allows."""
        return min(max(self._offset_ms, answered_ms - now_ms), answered_ms - sent_ms)

    def alone(self, *, wall_ms: int, now_ms: int) -> int:
        """Record that there is no other broker: the wall clock is the agreed time.

        Return the steady time in Unix milliseconds.
        """
        self._is_alone = True
        self._agree(wall_ms - now_ms, now_ms)
        return int(now_ms + self._steady_offset_ms)

    def _agree(self, offset_ms: int, now_ms: int) -> None:
        self._steady_to(now_ms)
        self._offset_ms = offset_ms
        if self._agreed_at_ms is None:
            self._steady_offset_ms = offset_ms
        self._agreed_at_ms = now_ms
        self.is_known = True
        far_ms = STEP_ALONE_MS if self._is_alone else self._skew_max_ms
        if abs(offset_ms - self._steady_offset_ms) <= far_ms:
            self._far_since_ms = None
        else:
            self._note_far(now_ms)

    def is_agreed(self, *, now_ms: int) -> bool:
        """Return whether there was an agreement lately."""
        return self._agreed_at_ms is not None and now_ms - self._agreed_at_ms <= _CONFIRMED_MS

    def time(self, *, now_ms: int) -> int:
        """Return the agreed time in Unix milliseconds."""
        return now_ms + self._offset_ms

    def skew(self, *, wall_ms: int, now_ms: int) -> int | None:
        """Return by how much the wall clock is ahead of the agreed time; `None` without one.

        Alone: by how much it is ahead of the elapsed time.
        """
        if not self.is_agreed(now_ms=now_ms):
            return None
        return wall_ms - (
            self.steady(now_ms=now_ms) if self._is_alone else self.time(now_ms=now_ms)
        )

    def deletion_time(self, *, wall_ms: int, now_ms: int) -> int | None:
        """Return the time that decides about deletion by time; `None`: nothing is deleted by time.

        It is the older one of agreed and steady time. A broker with a wrong clock deletes nothing,
        for its monotonic time may be wrong, too.
        """
        skew_ms = self.skew(wall_ms=wall_ms, now_ms=now_ms)
        if skew_ms is None or (not self._is_alone and abs(skew_ms) > self._skew_max_ms):
            return None
        return min(self.time(now_ms=now_ms), self.steady(now_ms=now_ms))

    def steady(self, *, now_ms: int) -> int:
        """Return the steady time in Unix milliseconds."""
        if now_ms != self._steady_at_ms:
            self._steady_to(now_ms)
        return int(now_ms + self._steady_offset_ms)

    def _steady_to(self, now_ms: int) -> None:
        """Slew towards the agreed time for the time that has passed."""
        passed_ms, self._steady_at_ms = now_ms - self._steady_at_ms, now_ms
        distance_ms = self._offset_ms - self._steady_offset_ms
        limit_ms = passed_ms * SLEW
        self._steady_offset_ms += min(max(distance_ms, -limit_ms), limit_ms)

    def _note_far(self, now_ms: int) -> None:
        """Step to the agreed time if the steady time is far from it, and has been for long.

        Otherwise a machine that started with a clock of another year would never get right.
        """
        if self._far_since_ms is None:
            self._far_since_ms = now_ms
        elif now_ms - self._far_since_ms >= STEP_AFTER_MS:
            self._steady_offset_ms = self._offset_ms
            self._far_since_ms = None
