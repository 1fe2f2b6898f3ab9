"""Which brokers are silent for too long, and what a heartbeat asks for.

Pure: no clock, no I/O. Times are monotonic milliseconds of the node that asks. Nothing of this is
replicated: whoever begins to lead the cluster gives every broker a full session from then on.
"""

from collections.abc import Iterable
from typing import NamedTuple, final

import msgspec

from tidelog.coordinator.metadata.broker_commands import current_broker
from tidelog.coordinator.metadata.commands import BeginShutdown, FenceBroker, UnfenceBroker
from tidelog.coordinator.metadata.records import BrokerRegistration
from tidelog.coordinator.metadata.state import ClusterState

HEARTBEAT_INTERVAL_MS = 2_000
SESSION_MS = 9_000
"""Four heartbeats may be lost or late before a broker is taken for dead."""
_AGAIN_MS = 1_000
BEHIND_MS = 2 * HEARTBEAT_INTERVAL_MS
"""A broker that has not applied for so long what it was told of is not counted as heard of. It
stops by itself to act as a leader; if it counted, nobody would take its place."""


class _Awaited(msgspec.Struct):
    """What a broker was told of first, of what it is not known to have applied."""

    broker_epoch: int
    index: int
    since_ms: int


class _Session(NamedTuple):
    broker_epoch: int
    deadline_ms: int


@final
class BrokerHeartbeatTracker:
    """When each broker that is not fenced was heard of last."""

    def __init__(
        self, brokers: Iterable[BrokerRegistration], *, now_ms: int, session_ms: int = SESSION_MS
    ) -> None:
        """Begin to lead: nobody has been silent yet."""
        self._session_ms = session_ms
        self._sessions: dict[int, _Session] = {}
        self._awaited: dict[int, _Awaited] = {}
        for broker in brokers:
            if not broker.is_fenced:
                self.touch(broker.node_id, broker.broker_epoch, now_ms=now_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        """When to ask `expired` again; `None` when there is nobody to wait for."""
        return min((each.deadline_ms for each in self._sessions.values()), default=None)

    def touch(self, node_id: int, broker_epoch: int, *, now_ms: int) -> None:
        """Take note of a heartbeat. That of an earlier process does not count."""
        known = self._sessions.get(node_id)
        if known is None or broker_epoch >= known.broker_epoch:
            self._sessions[node_id] = _Session(broker_epoch, now_ms + self._session_ms)

    def informed(self, node_id: int, broker_epoch: int, *, index: int, now_ms: int) -> None:
        """Take note that a broker was told of the metadata up to `index`, which it is to apply."""
        known = self._awaited.get(node_id)
        if known is None or known.broker_epoch != broker_epoch:
            self._awaited[node_id] = _Awaited(broker_epoch, index, now_ms)

    def is_behind(self, heartbeat: "BrokerHeartbeat", *, now_ms: int) -> bool:
        """Return whether a broker has not applied for too long what it was told of.

        It may have no room for it on its disk. What it says otherwise shows that it lives, not
        that it could lead.
        """
        known = self._awaited.get(heartbeat.node_id)
        if known is None or known.broker_epoch != heartbeat.broker_epoch:
            return False
        if heartbeat.applied_index is None or heartbeat.applied_index >= known.index:
            del self._awaited[heartbeat.node_id]
            return False
        return now_ms - known.since_ms >= BEHIND_MS

    def fenced(self, node_id: int, broker_epoch: int) -> None:
        """Take note that a broker is fenced, or gone: nobody waits for it any more."""
        known = self._sessions.get(node_id)
        if known is not None and known.broker_epoch <= broker_epoch:
            del self._sessions[node_id]

    def extend(self, by_ms: int) -> None:
        """Count nobody as silent for a time in which nobody could be heard here."""
        self._sessions = {
            node_id: _Session(broker_epoch, deadline_ms + by_ms)
            for node_id, (broker_epoch, deadline_ms) in self._sessions.items()
        }
        for awaited in self._awaited.values():
            awaited.since_ms += by_ms

    def expired(self, *, now_ms: int) -> list[FenceBroker]:
        """Return what is to be done about brokers whose session is over.

        The same broker is returned again a while later, until `fenced` is called: the command may
        have been dropped.
        """
        commands: list[FenceBroker] = []
        for node_id, (broker_epoch, deadline_ms) in self._sessions.items():
            if deadline_ms <= now_ms:
                commands.append(FenceBroker(node_id, broker_epoch))
                self._sessions[node_id] = _Session(broker_epoch, now_ms + _AGAIN_MS)
        return commands


class BrokerHeartbeat(msgspec.Struct, frozen=True, array_like=True):
    """A broker says that it lives."""

    node_id: int
    broker_epoch: int
    wants_to_stop: bool = False
    applied_index: int | None = None
    """How far it has applied the metadata; `None` if it does not say so."""


class HeartbeatAnswer(msgspec.Struct, frozen=True, array_like=True):
    """What a broker is told."""

    is_fenced: bool
    may_stop: bool
    """It leads nothing any more that others could."""
    is_counted: bool = True
    """It was heard of; not if it is long behind with the metadata."""


def heartbeat_command(
    state: ClusterState, heartbeat: BrokerHeartbeat, *, is_caught_up: bool
) -> UnfenceBroker | BeginShutdown | None:
    """Return what a heartbeat asks for, beyond being heard.

    Args:
        state: Of the node that leads the cluster, with what it has proposed.
        heartbeat: What the broker says.
        is_caught_up: Whether it has applied the metadata up to its own registration.

    Raises:
        StaleBrokerEpochError: It must register first.
    """
    broker = current_broker(state, heartbeat.node_id, heartbeat.broker_epoch)
    if heartbeat.wants_to_stop:
        if broker.is_shutting_down:
            return None
        return BeginShutdown(broker.node_id, broker.broker_epoch)
    if broker.is_fenced and is_caught_up and not broker.is_shutting_down:
        return UnfenceBroker(broker.node_id, broker.broker_epoch)
    return None


def heartbeat_answer(
    state: ClusterState, heartbeat: BrokerHeartbeat, *, is_counted: bool = True
) -> HeartbeatAnswer:
    """Return what a broker is told, by what is committed.

    Raises:
        StaleBrokerEpochError: It must register first.
    """
    broker = current_broker(state, heartbeat.node_id, heartbeat.broker_epoch)
    # What others could take over was given to them in the same entry.
    return HeartbeatAnswer(broker.is_fenced, broker.is_shutting_down, is_counted)


@final
class BrokerSession:
    """A broker's own view of its session: when it must stop to act as a leader.

    It counts from when a heartbeat was sent, not from when it was answered. So it ends here before
    it ends at the node that counts from when the heartbeat arrived, if their clocks run alike.
    """

    def __init__(self, *, session_ms: int = SESSION_MS) -> None:
        """Begin without a session."""
        self._session_ms = session_ms
        self._valid_until_ms: int | None = None

    def answered(self, *, sent_at_ms: int) -> None:
        """Take note that a heartbeat, sent then, was answered."""
        until_ms = sent_at_ms + self._session_ms
        if self._valid_until_ms is None or until_ms > self._valid_until_ms:
            self._valid_until_ms = until_ms

    def is_valid(self, *, now_ms: int) -> bool:
        """Return whether nobody can have taken this broker for dead yet."""
        return self._valid_until_ms is not None and now_ms < self._valid_until_ms
