"""Checkers of deletions, settings, topics and partition counts.

After a lost reply the outcome is unknown: the change may have happened, or happen later, while the
same broker process runs. After the next start it has happened or it never will.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, final

from tests.simulation.checkers.run_history import Checker, Fetched, FinalLog, TopicChange


@final
class DeletedStays(Checker):
    """Deleted records stay deleted, and no other records go.

    Definition: a fetch after an acknowledged deletion finds the log start at the end of the
    deletion or above it, across crashes. Without retention, the log start is never above the end of
    all requested deletions. A corrupt checkpoint is excused within a segment: the position of the
    log start in it is on no other place of the disk. Deleted segments never come back.
    """

    def __init__(self, *, has_retention: bool) -> None:
        """Set whether retention may delete records."""
        self._has_retention = has_retention
        self._asked_ends: dict[int, float] = {}
        self._ends: dict[int, list[tuple[float, int]]] = {}
        """By partition: times of acknowledged deletions, and their ends; both rise."""
        self._overtaken: dict[int, int] = {}
        """By partition: the log start that remains after a checkpoint became corrupt behind the
        last deletion request."""

    def deleting(self, partition: int, before_offset: int | None) -> None:
        """See `Checker`."""
        end = inf if before_offset is None else before_offset
        self._asked_ends[partition] = max(end, self._asked_ends.get(partition, 0))
        self._overtaken.pop(partition, None)

    def deleted(self, partition: int, before_offset: int) -> None:
        """See `Checker`."""
        ends = self._ends.setdefault(partition, [])
        end = min(before_offset, self._overtaken.get(partition, before_offset))
        if not ends or end > ends[-1][1]:
            ends.append((self.now(), end))

    def checkpoint_corrupted(self, partition: int, start_min: int) -> None:
        """See `Checker`."""
        known = self._ends.get(partition, [])
        self._ends[partition] = [(at, min(end, start_min)) for at, end in known]
        self._overtaken[partition] = start_min  # A reply may be in flight.

    def fetched(self, fetched: Fetched) -> None:
        """See `Checker`."""
        self._check(fetched.partition, fetched.log_start_offset, fetched.asked_at)

    def ended(self, logs: Mapping[int, FinalLog]) -> None:
        """See `Checker`."""
        for partition, log in logs.items():
            self._check(partition, log.log_start_offset, inf)

    def _check(self, partition: int, log_start_offset: int, asked_at: float) -> None:
        for at, end in reversed(self._ends.get(partition, ())):
            if at < asked_at:
                if log_start_offset < end:
                    self.fail(
                        f"partition {partition} was deleted up to {end}, and starts at"
                        f" {log_start_offset}"
                    )
                break
        asked_end = self._asked_ends.get(partition, 0)
        if not self._has_retention and log_start_offset > asked_end:
            self.fail(
                f"partition {partition} starts at {log_start_offset}, but only deletions up to"
                f" {asked_end} were requested"
            )


class _Alteration(NamedTuple):
    value: str
    asked_at: float


@final
class SettingsStay(Checker):
    """A setting has the value that was acknowledged last, across crashes.

    Definition: a reply has the value that was acknowledged or seen last, or a value that was
    requested since then. Requests from before a start of the broker no longer count after a later
    value was acknowledged or seen behind that start.
    """

    def __init__(self) -> None:
        """Start without settings; the first value seen is valid."""
        self._values: dict[str, str] = {}
        self._asked: dict[str, list[_Alteration]] = {}
        self._started_at = 0.0

    def altering(self, settings: Mapping[str, str], asked_at: float) -> None:
        """See `Checker`."""
        for name, value in settings.items():
            self._asked.setdefault(name, []).append(_Alteration(value, asked_at))

    def altered(self, settings: Mapping[str, str], asked_at: float) -> None:
        """See `Checker`."""
        for name, value in settings.items():
            self._settle(name, value, asked_at)

    def settings_seen(self, settings: Mapping[str, str], asked_at: float) -> None:
        """See `Checker`."""
        for name, value in settings.items():
            known = self._values.setdefault(name, value)
            asked = [alteration.value for alteration in self._asked.get(name, ())]
            if value != known and value not in asked:
                self.fail(f"{name} is {value}, and was {known}; asked for was {asked}")
            self._settle(name, value, asked_at)

    def probed(self, event: str, fields: Mapping[str, object]) -> None:
        """See `Checker`."""
        del fields
        if event == "broker_started":
            self._started_at = self.now()

    def _settle(self, name: str, value: str, asked_at: float) -> None:
        """Set `value` as the one in force after `asked_at`."""
        self._values[name] = value
        if asked_at > self._started_at:
            self._asked[name] = [
                alteration
                for alteration in self._asked.get(name, ())
                if alteration.asked_at > self._started_at
            ]


@final
@dataclass(slots=True)
class _Name:
    """Known state of the topic of one name."""

    topic_id: bytes | None = None
    creations: list[float] = field(default_factory=list[float])
    """Times of requested creations whose effect was not seen yet."""
    deletions: list[float] = field(default_factory=list[float])


@final
class TopicsStay(Checker):
    """A topic exists from its creation to its deletion, across crashes, and never again.

    Definition: a topic appears only after a request to create it, and disappears only after a
    request to delete its name. Each request explains one change; a request from before the start of
    a broker explains no change behind that start. A deleted id never comes back. A broker never
    finds files of a topic that its catalog does not have.
    """

    def __init__(self) -> None:
        """Start without topics."""
        self._names: dict[str, _Name] = {}
        self._gone: set[bytes] = set()
        self._started_at = 0.0

    def topic_changing(self, change: TopicChange) -> None:
        """See `Checker`."""
        known = self._names.setdefault(change.name, _Name())
        (known.creations if change.is_creation else known.deletions).append(change.asked_at)

    def topic_changed(self, change: TopicChange, topic_id: bytes | None) -> None:
        """See `Checker`."""
        if change.is_creation:
            assert topic_id is not None, "the reply to a creation has the topic id"
            if topic_id == self._names[change.name].topic_id or topic_id in self._gone:
                self.fail(f"{change.name} was created with the id of an earlier topic")
        self._see(change.name, topic_id if change.is_creation else None, change.asked_at)

    def topics_seen(self, ids: Mapping[str, bytes], asked_at: float) -> None:
        """See `Checker`."""
        for name in {**self._names, **ids}:
            self._see(name, ids.get(name), asked_at)

    def probed(self, event: str, fields: Mapping[str, object]) -> None:
        """See `Checker`."""
        if event == "broker_started":
            self._started_at = self.now()
        elif event == "topic_without_metadata":
            self.fail(f"the catalog has no topic for {fields['directory']}")

    def _see(self, name: str, topic_id: bytes | None, asked_at: float) -> None:
        known = self._names.setdefault(name, _Name())
        if topic_id != known.topic_id:
            if known.topic_id is not None:
                if not known.deletions:
                    self.fail(f"{name} is gone without a request")
                known.deletions.pop()
                self._gone.add(known.topic_id)
            if topic_id is not None:
                if topic_id in self._gone:
                    self.fail(f"{name} is back, {topic_id.hex()}, which was deleted")
                if not known.creations:
                    self.fail(f"{name} exists without a request")
                known.creations.pop()
            known.topic_id = topic_id
        if asked_at > self._started_at:
            known.creations = [at for at in known.creations if at > self._started_at]
            known.deletions = [at for at in known.deletions if at > self._started_at]


@final
class PartitionsStay(Checker):
    """A topic never gets fewer partitions, across crashes, and only partitions that were requested.

    Definition: a reply to a request that was sent after another reply has no smaller partition
    count, and no reply has a larger count than was requested.
    """

    def __init__(self) -> None:
        """Start without partition counts."""
        self._seen: list[tuple[float, int]] = []
        """Times and partition counts of replies; both rise."""
        self._asked_max = 0

    def growing(self, count: int) -> None:
        """Record that a client is about to request this partition count."""
        self._asked_max = max(count, self._asked_max)

    def seen(self, count: int, asked_at: float) -> None:
        """Check a partition count in the reply to a request sent at `asked_at`."""
        known = max((count for at, count in self._seen if at <= asked_at), default=0)
        if not known <= count <= self._asked_max:
            self.fail(
                f"there are {count} partitions; there were {known}, and {self._asked_max} were"
                " asked for at most"
            )
        if not self._seen or count > self._seen[-1][1]:
            self._seen.append((self.now(), count))
