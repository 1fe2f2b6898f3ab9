"""The expiry of groups without members, commits, lag and settings for a long time.

Pure: decides, given the time; no clock, no I/O. No group with lag expires, however long it is idle:
a consumer that comes back after a month goes on from its committed offsets. No group with settings
expires: its alerts are there when its members come back (Kafka: configs of a group stay).

Wall clocks jump. So a group must look due for an hour of this coordinator's own, monotonic time
before it is deleted. A group that does not look due once starts the hour again.
"""

from typing import Final, final

from tidelog.coordinator.groups.config import GroupConfig
from tidelog.coordinator.groups.group import Group

CONFIRMATION_MS: Final = 3_600_000


@final
class GroupExpiry:
    """The times since when groups look due."""

    def __init__(self, config: GroupConfig) -> None:
        """Start empty."""
        self._retention_ms = config.offsets_retention_ms
        self._due_since_ms: dict[str, int] = {}

    def is_idle(self, group: Group, wall_ms: int) -> bool:
        """Return whether a group had no members and commits for long, so that its lag decides."""
        return not group.members and wall_ms - group.empty_since_ms >= self._retention_ms

    def is_over(self, group: Group, *, lag_records: int | None, wall_ms: int, now_ms: int) -> bool:
        """Return whether a group has expired.

        Args:
            group: Any group.
            lag_records: Lag over all partitions with a committed offset; `None` if it is unknown
                in any of them.
            wall_ms: Unix milliseconds.
            now_ms: Monotonic milliseconds.
        """
        has_nothing_left = lag_records == 0 or not group.offsets
        if group.overrides or not (self.is_idle(group, wall_ms) and has_nothing_left):
            self._due_since_ms.pop(group.group_id, None)
            return False
        due_since_ms = self._due_since_ms.setdefault(group.group_id, now_ms)
        if now_ms - due_since_ms < CONFIRMATION_MS:
            return False
        del self._due_since_ms[group.group_id]
        return True
