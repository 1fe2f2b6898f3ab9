"""What a cluster promises of its metadata: to clients, and of brokers that lead."""

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
    PartitionRegistration,
    PartitionsAdded,
    PartitionsChanged,
)

_SESSION_S: Final = SESSION_MS / 1000


@final
class AnswersAreCommitted(NodeChecker):
    """What a client is told to be done is committed, and stays.

    Definition: when a client is told that a topic is created, some node has applied the record that
    says so. When it is told that one was deleted, none is there of this name that was there before
    it asked. When it is told that one has other settings, one of this name had them at some moment
    since it asked. When it is told how many partitions one has, one of this name has had so many.
    Since no applied entry is ever another one, it is so for ever.
    """

    def __init__(self) -> None:
        """Know of no topic."""
        self._names: dict[bytes, str] = {}
        self._there_since: dict[str, float] = {}
        """By name: when the topic of that name was created that is there."""
        self._settings: dict[str, list[tuple[float, Mapping[str, str]]]] = {}
        """By name: all settings that its topics ever had, and since when."""
        self._counts: dict[str, set[int]] = {}
        """By name: how many partitions its topics ever had."""

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
            self.fail(f"{name} is said to be created as {topic_id.hex()}, which is not committed")

    def told_deleted(self, name: str, asked_at: float) -> None:
        """See `NodeChecker`."""
        since = self._there_since.get(name, inf)
        if since < asked_at:
            self.fail(f"{name} is said to be deleted, and is there since {since:.3f} s")

    def told_altered(self, name: str, settings: Mapping[str, str], asked_at: float) -> None:
        """See `NodeChecker`; it may have had these settings before, and have others by now."""
        known = self._settings.get(name, [])
        ends = [*(at for at, _ in known[1:]), inf]
        if not any(
            end >= asked_at and settings.items() <= overrides.items()
            for (_, overrides), end in zip(known, ends, strict=False)
        ):
            self.fail(f"{name} is said to have been given {settings}, and has had {known[-3:]}")

    def told_partitions(self, name: str, count: int) -> None:
        """See `NodeChecker`."""
        if count not in self._counts.get(name, ()):
            self.fail(f"{name} is said to have {count} partitions, which is not committed")

    def _note(self, name: str, overrides: Mapping[str, str]) -> None:
        self._settings.setdefault(name, []).append((self.now(), overrides))


@final
class NamesAreUnique(NodeChecker):
    """A name is one topic at a time; an id is one topic for ever; what is not there cannot go."""

    def __init__(self) -> None:
        """Know of no topic."""
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
                    self.fail(f"entry {index} deletes {record.topic_id.hex()}, which is not there")
                else:
                    del self._by_name[name]


@final
class LeadersAreAlive(NodeChecker):
    """Who leads a partition is a replica of it that is in sync, and a broker that is not fenced.

    Epochs of partitions rise by one with each change, and leader epochs never fall.
    """

    def __init__(self) -> None:
        """Know of no partition."""
        self._partitions: dict[cluster_history.Partition, PartitionRegistration] = {}
        self._is_fenced: dict[int, bool] = {}

    def committed(self, index: int, records: Sequence[object]) -> None:
        """See `NodeChecker`; all records of an entry happen at once."""
        for record in records:
            match record:
                case BrokerRegistered():
                    self._is_fenced[record.broker.node_id] = record.broker.is_fenced
                case BrokerChanged():
                    self._is_fenced[record.node_id] = record.is_fenced
                case PartitionsAdded():
                    self._add(record)
                case PartitionsChanged():
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

    def _change(self, record: PartitionsChanged) -> None:
        for topic in record.topics:
            for changed in topic.partitions:
                key, after = (topic.topic_id, changed.number), changed.partition
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
    """A broker that the cluster has given up does not act as a leader any more.

    Definition: nobody who asks after a broker was fenced, or a newer process of it was registered,
    is answered by it as by a leader before it is let in again. It counts its session from when it
    sent its last heartbeat, so it stops before others take over.
    """

    def __init__(self) -> None:
        """Know of no broker."""
        self._out_since: dict[int, float] = {}
        """Brokers that are fenced, and since when."""

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
                f"node {served.node_id} was fenced at {out_since:.3f} s, and answers for"
                f" {served.partition} who asked at {served.asked_at:.3f} s"
            )

    def _note(self, node_id: int, *, is_fenced: bool) -> None:
        if not is_fenced:
            self._out_since.pop(node_id, None)
        else:
            self._out_since.setdefault(node_id, self.now())


class _Leading(NamedTuple):
    """A time in which one broker, or none, leads a partition."""

    leader: int | None
    since: float
    was_moved: bool
    """Whether the leader before was alive: it hears of it by itself."""


@final
class OneLeader(NodeChecker):
    """At most one broker acts as the leader of a partition at a time.

    Definition: who answers for a partition has been its leader by the committed metadata, and
    nobody who leads it since has answered for it before the question was asked. If it was alive
    when it was replaced, because somebody moves leaderships, it may go on until it has heard of
    that, for the time of a session; nothing that it appends then is ever committed.
    """

    def __init__(self) -> None:
        """Know of no leader."""
        self._terms: dict[cluster_history.Partition, list[_Leading]] = {}
        """By partition: its leaders one after the other."""
        self._served: dict[cluster_history.Partition, tuple[int, float]] = {}
        """By partition: the latest of its leaders who has answered, as a place in that list, and
        when it did first."""
        self._live: set[int] = set()

    def committed(self, index: int, records: Sequence[object]) -> None:
        """See `NodeChecker`; all records of an entry happen at once."""
        del index
        self._note_live(records)
        for record in records:
            if isinstance(record, PartitionsAdded):
                count = sum(topic_id == record.topic_id for topic_id, _ in self._terms)
                for number, partition in enumerate(record.partitions, count):
                    self._note((record.topic_id, number), partition.leader)
            elif isinstance(record, PartitionsChanged):
                for topic in record.topics:
                    for changed in topic.partitions:
                        self._note((topic.topic_id, changed.number), changed.partition.leader)

    def served(self, served: Served) -> None:
        """See `NodeChecker`."""
        terms = self._terms.get(served.partition, [])
        places = [place for place, term in enumerate(terms) if term.leader == served.node_id]
        if not places:
            self.fail(f"node {served.node_id} never led {served.partition}, and answers for it")
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
