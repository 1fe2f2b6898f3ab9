"""The history of a run: what clients did and were told, and what brokers said of themselves.

Every entry goes to every checker at the moment at which it happens, so a run ends at the very
event that broke a promise. The run history knows what may be forgotten: a topic that is only
`replicated` may lose its unsynced end with the power, and what was said of that end is void then.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, final

import msgspec

from tests.simulation.broker.partition_numbers import PartitionNumbers
from tidelog.wire.errors import BrokerError
from tidelog.wire.messages.produce import AckLevel

Place = tuple[int, int]
"""A partition, by its number in the run, and an offset."""

DURABLE_LEVELS = (AckLevel.LEADER_DURABLE, AckLevel.DURABLE)
"""What they say is on the disk."""


class ViolationError(Exception):
    """A promise was broken."""

    def __init__(self, checker: str, what: str) -> None:
        """Name the checker that says so."""
        super().__init__(f"{checker}: {what}")
        self.checker = checker


class ProducerRules(msgspec.Struct, frozen=True):
    """What a producer asked for, and so may expect."""

    acks: int
    is_idempotent: bool

    @property
    def may_repeat(self) -> bool:
        """Whether a record may be sent again, and then be kept twice."""
        return not self.is_idempotent and self.acks != 0


class SentRecord(msgspec.Struct, frozen=True):
    """One record of one producer; its value says who sent it, and is never sent again by others."""

    producer: str
    partition: int
    number: int
    """Grows by one with each record that this producer sends to this partition."""
    value: bytes


class Acknowledged(msgspec.Struct, frozen=True):
    """A record that its producer was told is kept."""

    record: SentRecord
    offset: int | None
    """`None` when the broker did not say it."""
    level: int
    """An `AckLevel`, 0 when the offset is `None`."""
    asked_at: float
    """When it was sent first, in simulated seconds."""


class Fetched(msgspec.Struct, frozen=True):
    """What one fetch brought of one partition."""

    reader: str
    partition: int
    fetch_offset: int
    next_offset: int
    """Where the reader goes on."""
    records: Sequence[tuple[int, bytes]]
    """Offsets and values, the offset asked for or above."""
    high_watermark: int
    log_start_offset: int
    asked_at: float


class Consumed(msgspec.Struct, frozen=True):
    """All that one consumer has read, from its start until it was told to stop."""

    reader: str
    next_offsets: Mapping[int, int]
    """How far it came in each partition that it was to read."""
    values: Mapping[Place, bytes]
    left_out: Sequence["DamageReported"]
    """What it was told that it cannot read: damaged or deleted."""


class TopicChange(msgspec.Struct, frozen=True):
    """The creation or the deletion of a topic."""

    name: str
    is_creation: bool
    asked_at: float


class OutOfRange(msgspec.Struct, frozen=True):
    """A reader was told that there is nothing where it wanted to read."""

    reader: str
    partition: int
    offset: int
    log_start_offset: int
    log_end_offset: int
    asked_at: float


class LookedUp(msgspec.Struct, frozen=True):
    """A reader has asked for the first record of a time or later."""

    partition: int
    timestamp_ms: int
    offset: int | None
    """The answer; the end of the log if there is none."""
    times: Sequence[tuple[int, int]]
    """Offset and timestamp of every record that there is, in milliseconds."""
    end_offset: int


class DamageReported(msgspec.Struct, frozen=True):
    """Somebody says that stored records are damaged."""

    partition: int
    offset: int
    next_offset: int
    """Exclusive end."""


@final
@dataclass(slots=True)
class FinalLog:
    """One partition at the end of a run, as the last reader found it."""

    log_start_offset: int = 0
    high_watermark: int = 0
    values: dict[int, bytes] = field(default_factory=dict[int, bytes])
    damage: list[DamageReported] = field(default_factory=list[DamageReported])


class Checker:
    """One promise. What it is told it checks at once; what it does not care for it ignores."""

    now: Callable[[], float]
    """Simulated time; set by the run history."""

    def fail(self, what: str) -> None:
        """Say that the promise is broken.

        Raises:
            ViolationError: Always.
        """
        raise ViolationError(type(self).__name__, what)

    def sent(self, record: SentRecord) -> None:
        """A producer is about to send a record for the first time."""

    def acknowledged(self, ack: Acknowledged) -> None:
        """A producer was told that a record is kept."""

    def refused(self, record: SentRecord) -> None:
        """A producer was told that a record was not appended, and surely never will be."""

    def fetched(self, fetched: Fetched) -> None:
        """A reader got a reply."""

    def consumed(self, consumed: Consumed) -> None:
        """A consumer is at the end, and reads no more."""

    def out_of_range(self, refusal: OutOfRange) -> None:
        """A reader was told the bounds of a log, and that it is outside of them."""

    def looked_up(self, looked_up: LookedUp) -> None:
        """A reader was told where a time is."""

    def deleting(self, partition: int, before_offset: int | None) -> None:
        """Records below an offset are to be deleted; `None` means all there are."""

    def deleted(self, partition: int, before_offset: int) -> None:
        """Somebody was told that records below an offset are deleted."""

    def altering(self, settings: Mapping[str, str], asked_at: float) -> None:
        """Settings of the topic are to be altered."""

    def altered(self, settings: Mapping[str, str], asked_at: float) -> None:
        """Somebody was told that settings are altered, as asked for then."""

    def settings_seen(self, settings: Mapping[str, str], asked_at: float) -> None:
        """Somebody was told all settings of the topic."""

    def topic_changing(self, change: TopicChange) -> None:
        """A topic is to be created or deleted."""

    def topic_changed(self, change: TopicChange, topic_id: bytes | None) -> None:
        """Somebody was told that it is; with its id, if that was said."""

    def topics_seen(self, ids: Mapping[str, bytes], asked_at: float) -> None:
        """Somebody was told of all topics that there are."""

    def damage_reported(self, damage: DamageReported) -> None:
        """A broker or a reader found damage."""

    def corrupted(self, damage: DamageReported) -> None:
        """The world damaged these records on the disk."""

    def checkpoint_corrupted(self, partition: int, start_min: int) -> None:
        """The world damaged what a broker has noted of a log apart from the log.

        On the disk there is no segment of it that begins below `start_min`.
        """

    def process_began(self) -> None:
        """A broker is about to start, and knows nothing of what happened before."""

    def disk_failed(self, partition: int | None) -> None:
        """The world let a call to the disk fail, for a file of this log, or of none."""

    def disk_filled(self) -> None:
        """The world left the disk no room."""

    def disk_freed(self) -> None:
        """The disk has room again."""

    def told(self, partition: int, error: BrokerError, asked_at: float) -> None:
        """A client that asked then for something of a partition was told of an error."""

    def forgotten(self, ends: Mapping[int, int]) -> None:
        """What lay at or above these offsets, by partition, may be lost, and given again."""

    def held_up(self, until: float) -> None:
        """Nobody can expect the broker to be in time before then; `inf` for its next start."""

    def probed(self, event: str, fields: Mapping[str, object]) -> None:
        """The broker said something of itself."""

    def ended(self, logs: Mapping[int, FinalLog]) -> None:
        """Everything was read for the last time."""


AnyChecker = TypeVar("AnyChecker", bound=Checker)


@final
class RunHistory:
    """Passes entries on to checkers.

    Invariant: no entry speaks of what a crash has made void since it was asked.
    """

    def __init__(
        self, checkers: Sequence[Checker], now: Callable[[], float], *, goes_on: bool = False
    ) -> None:
        """Begin with an empty run history.

        Args:
            checkers: All that are to be told.
            now: Says the simulated time.
            goes_on: Whether the run goes on when a checker objects, so that others may, too.
        """
        self.checkers = checkers
        self.now = now
        self.objections: dict[str, ViolationError] = {}
        """The first objection of each checker, if the run goes on."""
        self._goes_on = goes_on
        for checker in checkers:
            checker.now = now
        self.numbers = PartitionNumbers()
        self.acknowledged_count = 0
        self.read_count = 0
        self.start_count = 0
        """How often a broker has started."""
        self._forgotten_at = -1.0

    def checker(self, kind: type[AnyChecker]) -> AnyChecker:
        """Return the one checker of a kind, to ask what it knows."""
        (found,) = (checker for checker in self.checkers if isinstance(checker, kind))
        return found

    def sent(self, record: SentRecord) -> None:
        """See `Checker.sent`."""
        self._tell(lambda checker: checker.sent(record))

    def acknowledged(self, ack: Acknowledged) -> None:
        """See `Checker.acknowledged`; an acknowledgement in memory may come too late to count."""
        self.acknowledged_count += 1
        if ack.asked_at <= self._forgotten_at and ack.level not in DURABLE_LEVELS:
            return
        self._tell(lambda checker: checker.acknowledged(ack))

    def refused(self, record: SentRecord) -> None:
        """See `Checker.refused`."""
        self._tell(lambda checker: checker.refused(record))

    def fetched(self, fetched: Fetched) -> None:
        """See `Checker.fetched`; a reply from before a loss may be about what is lost."""
        self.read_count += len(fetched.records)
        if fetched.asked_at <= self._forgotten_at:
            return
        self._tell(lambda checker: checker.fetched(fetched))

    def consumed(self, consumed: Consumed) -> None:
        """See `Checker.consumed`."""
        self._tell(lambda checker: checker.consumed(consumed))

    def out_of_range(self, refusal: OutOfRange) -> None:
        """See `Checker.out_of_range`; a reply from before a loss may be about what is lost."""
        if refusal.asked_at <= self._forgotten_at:
            return
        self._tell(lambda checker: checker.out_of_range(refusal))

    def looked_up(self, looked_up: LookedUp) -> None:
        """See `Checker.looked_up`."""
        self._tell(lambda checker: checker.looked_up(looked_up))

    def deleting(self, partition: int, before_offset: int | None) -> None:
        """See `Checker.deleting`."""
        self._tell(lambda checker: checker.deleting(partition, before_offset))

    def deleted(self, partition: int, before_offset: int, asked_at: float) -> None:
        """See `Checker.deleted`; where the end was lost meanwhile, nobody knows what it was."""
        if asked_at <= self._forgotten_at:
            return
        self._tell(lambda checker: checker.deleted(partition, before_offset))

    def altering(self, settings: Mapping[str, str], asked_at: float) -> None:
        """See `Checker.altering`."""
        self._tell(lambda checker: checker.altering(settings, asked_at))

    def altered(self, settings: Mapping[str, str], asked_at: float) -> None:
        """See `Checker.altered`."""
        self._tell(lambda checker: checker.altered(settings, asked_at))

    def settings_seen(self, settings: Mapping[str, str], asked_at: float) -> None:
        """See `Checker.settings_seen`."""
        self._tell(lambda checker: checker.settings_seen(settings, asked_at))

    def topic_changing(self, change: TopicChange) -> None:
        """See `Checker.topic_changing`."""
        self._tell(lambda checker: checker.topic_changing(change))

    def topic_changed(self, change: TopicChange, topic_id: bytes | None) -> None:
        """See `Checker.topic_changed`."""
        self._tell(lambda checker: checker.topic_changed(change, topic_id))

    def topics_seen(self, ids: Mapping[str, bytes], asked_at: float) -> None:
        """See `Checker.topics_seen`."""
        self._tell(lambda checker: checker.topics_seen(ids, asked_at))

    def damage_reported(self, damage: DamageReported) -> None:
        """See `Checker.damage_reported`."""
        self._tell(lambda checker: checker.damage_reported(damage))

    def corrupted(self, damage: DamageReported) -> None:
        """See `Checker.corrupted`."""
        self._tell(lambda checker: checker.corrupted(damage))

    def checkpoint_corrupted(self, partition: int, start_min: int) -> None:
        """See `Checker.checkpoint_corrupted`."""
        self._tell(lambda checker: checker.checkpoint_corrupted(partition, start_min))

    def process_began(self) -> None:
        """See `Checker.process_began`."""
        self._tell(lambda checker: checker.process_began())

    def disk_failed(self, path: str) -> None:
        """See `Checker.disk_failed`; `path` is that of the file, or of its directory."""
        partition = self.numbers.of_directory(path)
        if partition is None:
            partition = self.numbers.of_directory(path.rpartition("/")[0])
        self._tell(lambda checker: checker.disk_failed(partition))

    def disk_filled(self) -> None:
        """See `Checker.disk_filled`."""
        self._tell(lambda checker: checker.disk_filled())

    def disk_freed(self) -> None:
        """See `Checker.disk_freed`."""
        self._tell(lambda checker: checker.disk_freed())

    def told(self, partition: int, error: BrokerError, asked_at: float) -> None:
        """See `Checker.told`."""
        self._tell(lambda checker: checker.told(partition, error, asked_at))

    def forgotten(self, ends: Mapping[int, int]) -> None:
        """See `Checker.forgotten`."""
        self._forgotten_at = self.now()
        self._tell(lambda checker: checker.forgotten(ends))

    def held_up(self, until: float) -> None:
        """See `Checker.held_up`."""
        for checker in self.checkers:
            checker.held_up(until)

    def probed(self, event: str, fields: Mapping[str, object]) -> None:
        """See `Checker.probed`; where the event is about a log, its number is with it."""
        self.start_count += event == "broker_started"
        number = self.numbers.of_directory(str(fields.get("directory")))
        if number is not None:
            fields = {**fields, "partition": number}
        self._tell(lambda checker: checker.probed(event, fields))

    def ended(self, logs: Mapping[int, FinalLog]) -> None:
        """See `Checker.ended`."""
        self._tell(lambda checker: checker.ended(logs))

    def _tell(self, tell: Callable[[Checker], None]) -> None:
        for checker in self.checkers:
            try:
                tell(checker)
            except ViolationError as objection:
                if not self._goes_on:
                    raise
                self.objections.setdefault(objection.checker, objection)
