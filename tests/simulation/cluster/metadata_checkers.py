"""Checkers of a cluster's metadata: replies to clients, and the leaders of partitions."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Final, NamedTuple, final

from tests.simulation.cluster import cluster_history
from tests.simulation.cluster.cluster_history import NodeChecker, Served
from tidelog.coordinator.metadata.broker_sessions import SESSION_MS
from tidelog.coordinator.metadata.catalog import (
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    TopicGrown,
)
from tidelog.coordinator.metadata.records import (
    BrokerChanged,
    BrokerRegistered,
    EqualPartitionsChanged,
    PartitionChanges,
    PartitionRegistration,
    PartitionsAdded,
    PartitionsChanged,
)

_SESSION_S: Final = SESSION_MS / 1000


@final
class AnswersAreCommitted(NodeChecker):
    """An acknowledged change of metadata is committed, and stays.

    Definition: when a client is told that a topic is created, some node has applied its record.
    When it is told that a topic was deleted, no topic of this name exists that existed before the
    request. When it is told that a topic has other settings, a topic of this name had them at some
    moment since the request. When it is told a partition count, a topic of this name has had that
    count. Since applied entries never change, this holds forever.
    """

    def __init__(self) -> None:
        """Start without topics."""
        self._names: dict[bytes, str] = {}
        self._there_since: dict[str, float] = {}
        """By name: creation time of the topic that exists."""
        self._settings: dict[str, list[tuple[float, Mapping[str, str]]]] = {}
        """By name: all settings that its topics ever had, with their times."""
        self._counts: dict[str, set[int]] = {}
        """By name: all partition counts that its topics ever had."""

    def committed(self, index: int, records: Sequence[object]) -> None:
        """See `NodeChecker`."""
        del index
        for record in records:
            match record:
                case TopicCreated():
                    self._names[record.topic_id] = record.name
                    self._there_since[record.name] = self.now()
                    self._note(record.name, record.overrides)
                    self._counts.setdefault(record.name, set()).add(record.partition_count)
                case TopicGrown():
                    self._counts[self._names[record.topic_id]].add(record.partition_count)
                case TopicDeleted():
                    self._there_since.pop(self._names[record.topic_id], None)
                case TopicAltered():
                    self._note(self._names[record.topic_id], record.overrides)
                case _:
                    pass

    def told_created(self, name: str, topic_id: bytes) -> None:
        """See `NodeChecker`."""
        if self._names.get(topic_id) != name:
            self.fail(f"{name} was acknowledged as {topic_id.hex()}, but is not committed")

    def told_deleted(self, name: str, asked_at: float) -> None:
        """See `NodeChecker`."""
        since = self._there_since.get(name, inf)
        if since < asked_at:
            self.fail(f"{name} was acknowledged as deleted, but exists since {since:.3f} s")

    def told_altered(self, name: str, settings: Mapping[str, str], asked_at: float) -> None:
        """See `NodeChecker`; it may have had these settings before, and have others by now."""
        known = self._settings.get(name, [])
        ends = [*(at for at, _ in known[1:]), inf]
        if not any(
            end >= asked_at and settings.items() <= overrides.items()
            for (_, overrides), end in zip(known, ends, strict=False)
        ):
            self.fail(f"{name} was told to have {settings}, but has had {known[-3:]}")

    def told_partitions(self, name: str, count: int) -> None:
        """See `NodeChecker`."""
        if count not in self._counts.get(name, ()):
            self.fail(f"{name} was told to have {count} partitions, which is not committed")

    def _note(self, name: str, overrides: Mapping[str, str]) -> None:
        self._settings.setdefault(name, []).append((self.now(), overrides))


@final
class NamesAreUnique(NodeChecker):
    """A name has one topic at a time, an id one topic forever; no missing topic is deleted."""

    def __init__(self) -> None:
        """Start without topics."""
        self._by_name: dict[str, bytes] = {}
        self._known: dict[bytes, str] = {}

    def committed(self, index: int, records: Sequence[object]) -> None:
        """See `NodeChecker`."""
        for record in records:
            if isinstance(record, TopicCreated):
                if record.name in self._by_name or record.topic_id in self._known:
                    self.fail(f"entry {index} creates {record.name} a second time")
                self._by_name[record.name] = record.topic_id
                self._known[record.topic_id] = record.name
            elif isinstance(record, TopicDeleted):
                name = self._known.get(record.topic_id)
                if name is None or self._by_name.get(name) != record.topic_id:
                    self.fail(f"entry {index} deletes the missing {record.topic_id.hex()}")
                else:
                    del self._by_name[name]


@final
class LeadersAreAlive(NodeChecker):
    """The leader of a partition is an in-sync replica of it, on a broker that is not fenced.

    Partition epochs rise by one with each change, and leader epochs never fall.
    """

    def __init__(self) -> None:
        """Start without partitions."""
        self._partitions: dict[cluster_history.Partition, PartitionRegistration] = {}
        self._is_fenced: dict[int, bool] = {}

    def committed(self, index: int, records: Sequence[object]) -> None:
        """See `NodeChecker`; all records of an entry take effect at once."""
        for record in records:
            match record:
                case BrokerRegistered():
                    self._is_fenced[record.broker.node_id] = record.broker.is_fenced
                case BrokerChanged():
                    self._is_fenced[record.node_id] = record.is_fenced
                case PartitionsAdded():
                    self._add(record)
                case PartitionsChanged() | EqualPartitionsChanged():
                    self._change(record)
                case TopicDeleted():
                    self._forget(record.topic_id)
                case _:
                    pass
        for key, partition in self._partitions.items():
            leader = partition.leader
            if leader is not None and (
                leader not in partition.in_sync_replicas or self._is_fenced.get(leader, True)
            ):
                self.fail(f"since entry {index} {key} is led by {leader}: {partition}")

    def _add(self, record: PartitionsAdded) -> None:
        count = sum(topic_id == record.topic_id for topic_id, _ in self._partitions)
        for number, partition in enumerate(record.partitions, count):
            self._partitions[record.topic_id, number] = partition

    def _change(self, record: PartitionChanges) -> None:
        for topic_id, number, after in record.changes():
            key = (topic_id, number)
            before = self._partitions[key]
            is_next = after.partition_epoch == before.partition_epoch + 1
            has_new_leader = after.leader != before.leader
            if not is_next or after.leader_epoch < before.leader_epoch + has_new_leader:
                self.fail(f"{key} goes from {before} to {after}")
            self._partitions[key] = after

    def _forget(self, topic_id: bytes) -> None:
        gone = [key for key in self._partitions if key[0] == topic_id]
        for key in gone:
            del self._partitions[key]


@final
class FencedIsSilent(NodeChecker):
    """A fenced broker does not act as a leader any more.

    Definition: a broker that was fenced, or replaced by a newer process, answers no later request
    as a leader before it is unfenced. It counts its session from the sending of its last heartbeat,
    so it stops before other brokers take over.
    """

    def __init__(self) -> None:
        """Start without brokers."""
        self._out_since: dict[int, float] = {}
        """Fenced brokers, and since when."""

    def committed(self, index: int, records: Sequence[object]) -> None:
        """See `NodeChecker`."""
        del index
        for record in records:
            if isinstance(record, BrokerRegistered):
                self._note(record.broker.node_id, is_fenced=record.broker.is_fenced)
            elif isinstance(record, BrokerChanged):
                self._note(record.node_id, is_fenced=record.is_fenced)

    def served(self, served: Served) -> None:
        """See `NodeChecker`."""
        out_since = self._out_since.get(served.node_id, inf)
        if out_since < served.asked_at:
            self.fail(
                f"node {served.node_id} was fenced at {out_since:.3f} s, but answers for"
                f" {served.partition}, asked at {served.asked_at:.3f} s"
            )

    def _note(self, node_id: int, *, is_fenced: bool) -> None:
        if not is_fenced:
            self._out_since.pop(node_id, None)
        else:
            self._out_since.setdefault(node_id, self.now())


class _Leading(NamedTuple):
    """A leadership of a partition, or a time without a leader."""

    leader: int | None
    since: float
    was_moved: bool
    """Whether the leader before was alive, and learns of its replacement."""


@final
class OneLeader(NodeChecker):
    """At most one broker acts as the leader of a partition at a time.

    Definition: a broker that answers for a partition has been its leader by the committed metadata,
    and no later leader has answered for it before the request was sent. If it was alive when it was
    replaced, because an administrator moves leaderships, it may continue until it learns of that,
    for the time of a session; no record that it appends then is ever committed.
    """

    def __init__(self) -> None:
        """Start without leaders."""
        self._terms: dict[cluster_history.Partition, list[_Leading]] = {}
        """By partition: its leaders, in order."""
        self._served: dict[cluster_history.Partition, tuple[int, float]] = {}
        """By partition: index of the latest leader in that list that has answered, and the time of
        its first answer."""
        self._live: set[int] = set()

    def committed(self, index: int, records: Sequence[object]) -> None:
        """See `NodeChecker`; all records of an entry take effect at once."""
        del index
        self._note_live(records)
        for record in records:
            if isinstance(record, PartitionsAdded):
                count = sum(topic_id == record.topic_id for topic_id, _ in self._terms)
                for number, partition in enumerate(record.partitions, count):
                    self._note((record.topic_id, number), partition.leader)
            elif isinstance(record, PartitionChanges):
                for topic_id, number, partition in record.changes():
                    self._note((topic_id, number), partition.leader)

    def served(self, served: Served) -> None:
        """See `NodeChecker`."""
        terms = self._terms.get(served.partition, [])
        places = [place for place, term in enumerate(terms) if term.leader == served.node_id]
        if not places:
            self.fail(f"node {served.node_id} never led {served.partition}, but answers for it")
        place = places[-1]
        latest, answered_at = self._served.get(served.partition, (-1, inf))
        if place < latest and answered_at < served.asked_at:
            after = terms[place + 1]
            if not after.was_moved or served.asked_at > after.since + _SESSION_S:
                self.fail(
                    f"node {served.node_id} answers for {served.partition}, for which node"
                    f" {terms[latest].leader} has answered since {answered_at:.3f} s"
                )
        if place > latest:
            self._served[served.partition] = (place, self.now())

    def _note_live(self, records: Sequence[object]) -> None:
        for record in records:
            if isinstance(record, BrokerRegistered):
                self._live.discard(record.broker.node_id)
            elif isinstance(record, BrokerChanged) and record.is_fenced:
                self._live.discard(record.node_id)
            elif isinstance(record, BrokerChanged):
                self._live.add(record.node_id)

    def _note(self, partition: cluster_history.Partition, leader: int | None) -> None:
        terms = self._terms.setdefault(partition, [])
        if not terms or terms[-1].leader != leader:
            was_moved = bool(terms) and terms[-1].leader in self._live
            terms.append(_Leading(leader, self.now(), was_moved))
