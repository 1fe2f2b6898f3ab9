"""Sessions of group members: silent, slow to revoke, or stuck members are fenced.

Pure: decides, given the time; no clock, no I/O. Not replicated: only the coordinator that leads has
them, and the next one starts again, with a full session for every member.

Times are monotonic milliseconds of this coordinator. A member is fenced

- when it was silent for a session,
- when it was told to revoke partitions and has not for its rebalance timeout,
- when its application worked without a pause for `max_poll_interval_ms`.

A working application (`busy_for_ms` in a heartbeat) delays the first two, up to the third: a slow
handler is no dead process. A client announces beforehand that its application blocks the process.
"""

from heapq import heapify, heappop, heappush
from typing import final

import msgspec

from tidelog.coordinator.groups.config import GroupConfig

MemberKey = tuple[str, str]
"""Group id and member id."""

_GARBAGE_FACTOR = 4


class ExpiredMember(msgspec.Struct, frozen=True):
    """A member whose session has ended."""

    group_id: str
    member_id: str
    reason: str
    """For administrators: `session timeout`, `did not revoke in time` or `max poll interval`."""


@final
class _Session:
    """The deadlines of one member.

    Invariant: `queued_ms` is the earliest time under which the member stands in the queue, and
    not above `deadline_ms`.
    """

    __slots__ = ("busy_since_ms", "deadline_ms", "queued_ms", "reason", "revoking_since_ms")

    def __init__(self) -> None:
        self.deadline_ms = 0
        self.reason = ""
        self.queued_ms: int | None = None
        self.busy_since_ms: int | None = None
        self.revoking_since_ms: int | None = None


class SessionHeartbeat(msgspec.Struct, frozen=True):
    """The times in a heartbeat that set its member's deadline."""

    busy_for_ms: int = 0
    """How long the application asks not to be fenced; 0 when it is not working."""
    rebalance_timeout_ms: int | None = None
    """How long the member may take to revoke partitions; `None` without any to revoke."""


@final
class Sessions:
    """The sessions of all members of all groups.

    A heartbeat costs O(1) as long as deadlines move on: the member stands in a heap once, and is
    checked again at the time of its place there.
    """

    def __init__(self, config: GroupConfig) -> None:
        """Start without members."""
        self._config = config
        self._sessions: dict[MemberKey, _Session] = {}
        self._queue: list[tuple[int, MemberKey]] = []

    def on_heartbeat(self, key: MemberKey, heartbeat: SessionHeartbeat, now_ms: int) -> None:
        """Renew a session by a heartbeat, or start one for a known member."""
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = _Session()
        if heartbeat.busy_for_ms <= 0:
            session.busy_since_ms = None
        elif session.busy_since_ms is None:
            session.busy_since_ms = now_ms
        if heartbeat.rebalance_timeout_ms is None:
            session.revoking_since_ms = None
        elif session.revoking_since_ms is None:
            session.revoking_since_ms = now_ms
        session.deadline_ms, session.reason = self._deadline(session, heartbeat, now_ms)
        if session.queued_ms is None or session.deadline_ms < session.queued_ms:
            session.queued_ms = session.deadline_ms
            heappush(self._queue, (session.deadline_ms, key))

    def forget(self, key: MemberKey) -> None:
        """Remove the session of a former member."""
        self._sessions.pop(key, None)
        if len(self._queue) > _GARBAGE_FACTOR * (len(self._sessions) + 1):
            self._queue = [
                (session.queued_ms, one)
                for one, session in self._sessions.items()
                if session.queued_ms is not None
            ]
            heapify(self._queue)

    @property
    def next_deadline_ms(self) -> int | None:
        """Latest time of the next call of `expired`; `None` without members."""
        return self._queue[0][0] if self._queue else None

    def expired(self, now_ms: int) -> list[ExpiredMember]:
        """Return and remove members whose deadline has passed."""
        found: list[ExpiredMember] = []
        while self._queue and self._queue[0][0] <= now_ms:
            queued_ms, key = heappop(self._queue)
            session = self._sessions.get(key)
            if session is None or session.queued_ms != queued_ms:
                continue
            if session.deadline_ms <= now_ms:
                del self._sessions[key]
                found.append(ExpiredMember(*key, session.reason))
            else:
                session.queued_ms = session.deadline_ms
                heappush(self._queue, (session.deadline_ms, key))
        return found

    def _deadline(
        self, session: _Session, heartbeat: SessionHeartbeat, now_ms: int
    ) -> tuple[int, str]:
        config = self._config
        lease_ms = now_ms
        deadlines: list[tuple[int, str]] = []
        if session.busy_since_ms is not None:
            stuck_ms = session.busy_since_ms + config.max_poll_interval_ms
            lease_ms = min(now_ms + heartbeat.busy_for_ms, stuck_ms)
            deadlines.append((stuck_ms, "max poll interval"))
        if session.revoking_since_ms is not None and heartbeat.rebalance_timeout_ms is not None:
            patience_ms = session.revoking_since_ms + heartbeat.rebalance_timeout_ms
            deadlines.append((max(patience_ms, lease_ms), "did not revoke in time"))
        deadlines.append((max(now_ms + config.session_timeout_ms, lease_ms), "session timeout"))
        return min(deadlines, key=lambda deadline: deadline[0])
