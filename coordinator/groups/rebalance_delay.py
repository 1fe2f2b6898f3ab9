"""The delay of target assignments: not at every change, and not long after.

Pure: decides, given the time; no clock, no I/O. Not replicated: the next coordinator starts again.

- The first member of an empty group waits for others, for `initial_rebalance_delay_ms`.
- Targets of one group are `assignment_interval_ms` apart: changes in between are combined.
- A member that leaves is expected to be replaced, as in a rolling deploy. Its partitions wait for a
  new member for `replacement_delay_ms`, and go to that member alone. A fenced member is not waited
  for: its session was delay enough.
- No change waits longer than `max_assignment_delay_ms`.
"""

from heapq import heappop, heappush
from typing import final

from tidelog.coordinator.groups.config import GroupConfig


@final
class _Pending:
    """A group that needs a target."""

    __slots__ = ("due_ms", "missing_count", "since_ms", "wait_until_ms")

    def __init__(self, now_ms: int) -> None:
        self.since_ms = now_ms
        self.due_ms: int | None = None
        self.wait_until_ms = now_ms
        """Until then, the group waits for replacements of `missing_count` members."""
        self.missing_count = 0


@final
class RebalanceDelay:
    """The due times of all groups.

    Invariant: each group of `_pending` stands in the queue under its `due_ms`.
    """

    def __init__(self, config: GroupConfig) -> None:
        """Start empty."""
        self._config = config
        self._pending: dict[str, _Pending] = {}
        self._computed_ms: dict[str, int] = {}
        self._queue: list[tuple[int, str]] = []

    def began(self, group_id: str, now_ms: int) -> None:
        """Record a first member, or a group without a target at the start."""
        pending = self._pending.setdefault(group_id, _Pending(now_ms))
        pending.wait_until_ms = now_ms + self._config.initial_rebalance_delay_ms
        pending.missing_count = 0
        self._schedule(group_id, pending, now_ms)

    def joined(self, group_id: str, now_ms: int) -> None:
        """Record one more member."""
        pending = self._pending.setdefault(group_id, _Pending(now_ms))
        if pending.missing_count > 0:
            pending.missing_count -= 1
            if pending.missing_count == 0:
                pending.wait_until_ms = now_ms
        self._schedule(group_id, pending, now_ms)

    def left(self, group_id: str, now_ms: int) -> None:
        """Record a member that left on purpose, and may be replaced."""
        pending = self._pending.setdefault(group_id, _Pending(now_ms))
        pending.missing_count += 1
        pending.wait_until_ms = now_ms + self._config.replacement_delay_ms
        self._schedule(group_id, pending, now_ms)

    def changed(self, group_id: str, now_ms: int) -> None:
        """Record any other change: fenced members, subscriptions, topics."""
        self._schedule(group_id, self._pending.setdefault(group_id, _Pending(now_ms)), now_ms)

    def forget(self, group_id: str) -> None:
        """Remove a deleted group."""
        self._pending.pop(group_id, None)
        self._computed_ms.pop(group_id, None)

    @property
    def next_deadline_ms(self) -> int | None:
        """Latest time of the next call of `due`; `None` when no group waits."""
        return self._queue[0][0] if self._queue else None

    def due(self, now_ms: int) -> list[str]:
        """Return and remove the groups whose target is due."""
        found: list[str] = []
        while self._queue and self._queue[0][0] <= now_ms:
            due_ms, group_id = heappop(self._queue)
            pending = self._pending.get(group_id)
            if pending is not None and pending.due_ms == due_ms:
                del self._pending[group_id]
                self._computed_ms[group_id] = now_ms
                found.append(group_id)
        return found

    def _schedule(self, group_id: str, pending: _Pending, now_ms: int) -> None:
        wait_until_ms = min(
            pending.wait_until_ms, pending.since_ms + self._config.max_assignment_delay_ms
        )
        due_ms = max(now_ms, wait_until_ms)
        computed_ms = self._computed_ms.get(group_id)
        if computed_ms is not None:
            due_ms = max(due_ms, computed_ms + self._config.assignment_interval_ms)
        if due_ms != pending.due_ms:
            pending.due_ms = due_ms
            heappush(self._queue, (due_ms, group_id))
