"""Broker sessions: expiry of silent brokers, and the commands that heartbeats require.

Pure: no clock, no I/O. Times are monotonic milliseconds of the caller. Sessions are not
replicated: a new controller gives every broker a full session from its election on.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, final

import msgspec

from tidelog.coordinator.metadata.broker_commands import (
    current_broker,
    has_newer_epoch,
    has_other_levels,
)
from tidelog.coordinator.metadata.commands import BeginShutdown, FenceBroker, UnfenceBroker
from tidelog.coordinator.metadata.records import BrokerRegistration
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.wire.messages.cluster import DamagedReplicas
from tidelog.wire.messages.features import SupportedLevels
from tidelog.wire.messages.quotas import PrincipalShare, PrincipalUse

HEARTBEAT_INTERVAL_MS = 750
SESSION_MS = 3_000
"""Three heartbeats may be lost or late before a session expires."""
_AGAIN_MS = 1_000
BEHIND_MS = 4_000
"""Heartbeats do not renew a session if the broker has not applied announced metadata for so long.
Such a broker stops to act as a leader; a renewed session would keep others from taking over."""


class _Awaited(msgspec.Struct):
    """The first announced metadata that a broker is not known to have applied."""

    broker_epoch: int
    index: int
    since_ms: int


class _Session(NamedTuple):
    broker_epoch: int
    deadline_ms: int


@final
class BrokerHeartbeatTracker:
    """Deadlines of the sessions of brokers that are not fenced."""

    def __init__(
        self, brokers: Iterable[BrokerRegistration], *, now_ms: int, session_ms: int = SESSION_MS
    ) -> None:
        """Start with a full session for every broker that is not fenced."""
        self._session_ms = session_ms
        self._sessions: dict[int, _Session] = {}
        self._awaited: dict[int, _Awaited] = {}
        for broker in brokers:
            if not broker.is_fenced:
                self.touch(broker.node_id, broker.broker_epoch, now_ms=now_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        """Time of the next call of `expired`; `None` without sessions."""
        return min((each.deadline_ms for each in self._sessions.values()), default=None)

    def touch(self, node_id: int, broker_epoch: int, *, now_ms: int) -> None:
        """Renew a session by a heartbeat; one of an earlier process is ignored."""
        known = self._sessions.get(node_id)
        if known is None or broker_epoch >= known.broker_epoch:
            self._sessions[node_id] = _Session(broker_epoch, now_ms + self._session_ms)

    def informed(self, node_id: int, broker_epoch: int, *, index: int, now_ms: int) -> None:
        """Record that a broker was told of the metadata up to `index`, which it has to apply."""
        known = self._awaited.get(node_id)
        if known is None or known.broker_epoch != broker_epoch:
            self._awaited[node_id] = _Awaited(broker_epoch, index, now_ms)

    def is_behind(self, heartbeat: "BrokerHeartbeat", *, now_ms: int) -> bool:
        """Return whether a broker has not applied announced metadata for too long.

        Its disk may be full. Its heartbeats show that it is alive, not that it can lead.
        """
        known = self._awaited.get(heartbeat.node_id)
        if known is None or known.broker_epoch != heartbeat.broker_epoch:
            return False
        if heartbeat.applied_index is None or heartbeat.applied_index >= known.index:
            del self._awaited[heartbeat.node_id]
            return False
        return now_ms - known.since_ms >= BEHIND_MS

    def fenced(self, node_id: int, broker_epoch: int) -> None:
        """End the session of a broker that is fenced or unregistered."""
        known = self._sessions.get(node_id)
        if known is not None and known.broker_epoch <= broker_epoch:
            del self._sessions[node_id]

    def extend(self, by_ms: int) -> None:
        """Extend all sessions by a time in which no heartbeat could arrive here."""
        self._sessions = {
            node_id: _Session(broker_epoch, deadline_ms + by_ms)
            for node_id, (broker_epoch, deadline_ms) in self._sessions.items()
        }
        for awaited in self._awaited.values():
            awaited.since_ms += by_ms

    def expired(self, *, now_ms: int) -> list[FenceBroker]:
        """Return the commands for brokers whose session has expired.

        The same broker is returned again a second later, until `fenced` is called: the command may
        have been dropped.
        """
        commands: list[FenceBroker] = []
        for node_id, (broker_epoch, deadline_ms) in self._sessions.items():
            if deadline_ms <= now_ms:
                commands.append(FenceBroker(node_id, broker_epoch))
                self._sessions[node_id] = _Session(broker_epoch, now_ms + _AGAIN_MS)
        return commands


class BrokerHeartbeat(msgspec.Struct, frozen=True, array_like=True):
    """A broker's heartbeat."""

    node_id: int
    broker_epoch: int
    wants_to_stop: bool = False
    applied_index: int | None = None
    """The metadata index that the broker has applied; `None` if it does not report one."""
    directory_epoch: int | None = None
    """The broker epoch that its data directory holds; `None` if it does not report one."""
    wall_ms: int | None = None
    """The broker's wall clock; `None` if it does not report it."""
    supported_levels: SupportedLevels | None = None
    """Feature levels of the process; `None` from a version without any."""
    damaged: DamagedReplicas | None = None
    """Its damaged replicas; `None` if it does not report them."""
    quota_use: Sequence[PrincipalUse] = ()
    """Its use of quotas, by principal."""


class HeartbeatAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a heartbeat."""

    is_fenced: bool
    may_stop: bool
    """The broker leads nothing that another broker could lead."""
    is_counted: bool = True
    """Whether the heartbeat renewed the session; not if the broker is long behind with the
    metadata."""
    agreed_ms: int | None = None
    """See `coordinator.metadata.cluster_clock.ClockAgreement`."""
    clock_skews_ms: Mapping[int, int] = {}
    controller_ms: int | None = None
    """The controller's own agreed time; `None` if it never had one."""
    damaged: Sequence[DamagedReplicas] = ()
    """The damaged replicas of each broker that has reported, by node id."""
    quota_shares: Sequence[PrincipalShare] = ()
    """Its shares of quotas."""


def heartbeat_command(
    state: ClusterState, heartbeat: BrokerHeartbeat, *, is_caught_up: bool
) -> UnfenceBroker | BeginShutdown | None:
    """Return the command that a heartbeat requires, if any.

    Args:
        state: The controller's state, with all records that it has proposed.
        heartbeat: The broker's heartbeat.
        is_caught_up: Whether the broker has applied the metadata up to its own registration.

    Raises:
        StaleBrokerEpochError: The broker must register first.
    """
    broker = current_broker(state, heartbeat.node_id, heartbeat.broker_epoch)
    if heartbeat.wants_to_stop:
        if broker.is_shutting_down:
            return None
        return BeginShutdown(broker.node_id, broker.broker_epoch)
    levels = heartbeat.supported_levels
    has_news = (
        broker.is_fenced
        or has_newer_epoch(broker, heartbeat.directory_epoch)
        or has_other_levels(broker, levels)
    )
    if has_news and is_caught_up and not broker.is_shutting_down:
        return UnfenceBroker(broker.node_id, broker.broker_epoch, heartbeat.directory_epoch, levels)
    return None


def heartbeat_answer(
    state: ClusterState, heartbeat: BrokerHeartbeat, *, is_counted: bool = True
) -> HeartbeatAnswer:
    """Return the answer to a heartbeat, by the committed metadata.

    Raises:
        StaleBrokerEpochError: The broker must register first.
    """
    broker = current_broker(state, heartbeat.node_id, heartbeat.broker_epoch)
    # The entry that began the shutdown has already moved all leaderships that could move.
    return HeartbeatAnswer(broker.is_fenced, broker.is_shutting_down, is_counted)


@final
class BrokerSession:
    """A broker's own view of its session, at whose end it stops to act as a leader.

    It counts from the sending of a heartbeat, not from its answer. So it ends here before it ends
    at the controller, which counts from the arrival of the heartbeat, if their clocks run alike.
    """

    def __init__(self, *, session_ms: int = SESSION_MS) -> None:
        """Start without a session."""
        self._session_ms = session_ms
        self.valid_until_ms: float = -math.inf
        """Time up to which the controller cannot have fenced this broker."""

    def answered(self, *, sent_at_ms: int) -> None:
        """Renew the session by an answered heartbeat, counted from when it was sent."""
        self.valid_until_ms = max(self.valid_until_ms, sent_at_ms + self._session_ms)

    def is_valid(self, *, now_ms: int) -> bool:
        """Return whether the controller cannot have fenced this broker yet."""
        return now_ms < self.valid_until_ms
