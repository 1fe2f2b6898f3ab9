"""Session of a transaction name: what a client keeps from one transaction to the next.

Plain calls only. A commit begins the next transaction of its name, so this client can stage for it
without a request before. It also keeps the producer, whose identity and sequences go on, and the
ids of topics. All of that only saves requests: after a failure it is dropped, and asked for again.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, final

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.config import ProducerConfig
from tidelog.client.producer.producer import Producer

_PRODUCERS_MAX: Final = 2
"""Producers that a name keeps."""
_NAMES_MAX: Final = 256
"""Names that a client keeps something of."""


class StagedTopic(NamedTuple):
    """Ids of a topic and of its staging log."""

    topic_id: bytes
    staging_id: bytes


@final
@dataclass(frozen=True, slots=True)
class BegunTransaction:
    """A transaction that is open."""

    number: int
    renewed_at: float
    """Time of the first keep-alive in seconds of trio's clock."""
    previous_id: int | None = None
    """Id of the transaction whose commit has begun this one; `None` after a request of its own. No
    other transaction of the name was or can be committed before this one ends."""


class _Idle(NamedTuple):
    config: ProducerConfig
    producer: Producer
    number: int
    """Number of the last transaction that it staged for."""


@final
class NameSession:
    """Next transaction, producers and topics of one name."""

    def __init__(self, cluster: ClusterClient) -> None:
        """Start without anything."""
        self.topics: dict[str, StagedTopic] = {}
        """By name, topics whose staging logs exist."""
        self._cluster = cluster
        self._next: BegunTransaction | None = None
        self._next_id: int | None = None
        """Id of the transaction that uses it."""
        self._idle: list[_Idle] = []

    def committed(self, transaction_id: int, number: int, *, renewed_at: float) -> None:
        """Note the transaction that a commit has begun; `number` is 0 without one."""
        self._next = BegunTransaction(number, renewed_at, transaction_id) if number else None
        self._next_id = None

    def begun(self, transaction_id: int, now: float) -> BegunTransaction | None:
        """Return the open transaction for an id, if the last commit of this client has begun it."""
        following = self._next
        if following is None or following.previous_id is None or following.renewed_at <= now:
            return None
        if transaction_id <= following.previous_id or self._next_id not in (None, transaction_id):
            return None
        self._next_id = transaction_id
        return following

    def forget(self) -> None:
        """Drop everything: a request failed, and the cluster may know better."""
        self._next = self._next_id = None
        self.topics = {}
        for each in self._idle:
            self._close(each.producer)
        self._idle = []

    def take_producer(self, config: ProducerConfig, number: int) -> Producer | None:
        """Return a producer for a task of a transaction, if there is one.

        Tasks of the same transaction need different producers: each names its own records.
        """
        for at, each in enumerate(self._idle):
            if each.number != number and each.config == config:
                del self._idle[at]
                return each.producer
        return None

    def keep_producer(self, config: ProducerConfig, producer: Producer, number: int) -> None:
        """Keep a producer all of whose records are acknowledged, for another transaction."""
        self._idle.append(_Idle(config, producer, number))
        if len(self._idle) > _PRODUCERS_MAX:
            self._close(self._idle.pop(0).producer)

    def _close(self, producer: Producer) -> None:
        self._cluster.tasks.start_soon(producer.__aexit__, None, None, None)


@final
class NameSessions:
    """Sessions of the names that a client used last."""

    def __init__(self, cluster: ClusterClient) -> None:
        """Start without sessions."""
        self._cluster = cluster
        self._sessions: dict[str, NameSession] = {}

    def of(self, name: str) -> NameSession:
        """Return the session of a name; that of the name used longest ago may end."""
        session = self._sessions.pop(name, None) or NameSession(self._cluster)
        self._sessions[name] = session
        if len(self._sessions) > _NAMES_MAX:
            self._sessions.pop(next(iter(self._sessions))).forget()
        return session
