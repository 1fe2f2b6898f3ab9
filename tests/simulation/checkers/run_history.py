"""The history of a run: requests and replies of clients, and events of brokers.

Every entry goes to every checker at the moment at which it happens, so a run ends at the event that
broke a promise. The run history knows the allowed losses: a topic that is only `replicated` may
lose its unsynced end with the power, and entries about that end are void then.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, final

import msgspec

from tests.simulation.broker.partition_numbers import PartitionNumbers
from tidelog.wire.errors import BrokerError, LogTruncatedError
from tidelog.wire.messages.produce import AckLevel

Place = tuple[int, int]
"""Number of a partition in the run, and offset."""

DURABLE_LEVELS = (AckLevel.LEADER_DURABLE, AckLevel.DURABLE)
"""Acknowledgement levels of records that are on the disk."""


class ViolationError(Exception):
    """A promise was broken."""

    def __init__(self, checker: str, what: str) -> None:
        """Name the checker that objects."""
        super().__init__(f"{checker}: {what}")
        self.checker = checker


class ProducerRules(msgspec.Struct, frozen=True):
    """Settings of a producer that determine its guarantees."""

    acks: int
    is_idempotent: bool

    @property
    def may_repeat(self) -> bool:
        """Whether a record may be sent again, and then be stored twice."""
        return not self.is_idempotent and self.acks != 0


class SentRecord(msgspec.Struct, frozen=True):
    """One record of one producer; its value names the producer, and is unique."""

    producer: str
    partition: int
    number: int
    """Grows by one with each record of this producer in this partition."""
    value: bytes


class Acknowledged(msgspec.Struct, frozen=True):
    """A record whose producer received an acknowledgement."""

    record: SentRecord
    offset: int | None
    """`None` if the reply has no offset."""
    level: int
    """An `AckLevel`, 0 when the offset is `None`."""
    asked_at: float
    """Time of the first attempt, in simulated seconds."""


class Fetched(msgspec.Struct, frozen=True):
    """Reply of one fetch for one partition."""

    reader: str
    partition: int
    fetch_offset: int
    next_offset: int
    """Next offset of the reader."""
    records: Sequence[tuple[int, bytes]]
    """Offsets and values, from the requested offset on."""
    high_watermark: int
    log_start_offset: int
    asked_at: float


class Consumed(msgspec.Struct, frozen=True):
    """All records that one consumer has read, from its start until it was told to stop."""

    reader: str
    next_offsets: Mapping[int, int]
    """Position of the consumer in each of its partitions."""
    values: Mapping[Place, bytes]
    left_out: Sequence["DamageReported"]
    """Damaged or deleted ranges that the consumer was told of."""


class TopicChange(msgspec.Struct, frozen=True):
    """The creation or the deletion of a topic."""

    name: str
    is_creation: bool
    asked_at: float


class OutOfRange(msgspec.Struct, frozen=True):
    """An `OFFSET_OUT_OF_RANGE` error of a reader."""

    reader: str
    partition: int
    offset: int
    log_start_offset: int
    log_end_offset: int
    asked_at: float


class LookedUp(msgspec.Struct, frozen=True):
    """Lookup of the first record with a timestamp or a later one."""

    partition: int
    timestamp_ms: int
    offset: int | None
    """Offset in the reply; the end of the log if there is no such record."""
    times: Sequence[tuple[int, int]]
    """Offset and timestamp of every record of the partition, in milliseconds."""
    end_offset: int


class DamageReported(msgspec.Struct, frozen=True):
    """A report of damaged records, from a broker, a reader or a fault."""

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
    """One promise. A subclass checks the events that it needs at once, and ignores all others."""

    now: Callable[[], float]
    """Simulated time; set by the run history."""

    def fail(self, what: str) -> None:
        """Report that the promise is broken.

        Raises:
            ViolationError: Always.
        """
        raise ViolationError(type(self).__name__, what)

    def sent(self, record: SentRecord) -> None:
        """Handle a record that a producer is about to send for the first time."""

    def acknowledged(self, ack: Acknowledged) -> None:
        """Handle an acknowledgement."""

    def refused(self, record: SentRecord) -> None:
        """Handle a failed send of a record that was not appended and never will be."""

    def fetched(self, fetched: Fetched) -> None:
        """Handle the reply to a reader's fetch."""

    def consumed(self, consumed: Consumed) -> None:
        """Handle the records of a consumer that is at the end and reads no more."""

    def out_of_range(self, refusal: OutOfRange) -> None:
        """Handle an `OFFSET_OUT_OF_RANGE` reply with the bounds of a log."""

    def truncated(self, partition: int, error: LogTruncatedError) -> None:
        """Handle a `LOG_TRUNCATED` error of a consumer."""

    def looked_up(self, looked_up: LookedUp) -> None:
        """Handle the reply to a lookup by timestamp."""

    def deleting(self, partition: int, before_offset: int | None) -> None:
        """Handle a request to delete records below an offset; `None` means all records."""

    def deleted(self, partition: int, before_offset: int) -> None:
        """Handle an acknowledged deletion of the records below an offset."""

    def altering(self, settings: Mapping[str, str], asked_at: float) -> None:
        """Handle a request to alter settings of the topic."""

    def altered(self, settings: Mapping[str, str], asked_at: float) -> None:
        """Handle an acknowledged alteration of settings, requested at `asked_at`."""

    def settings_seen(self, settings: Mapping[str, str], asked_at: float) -> None:
        """Handle a reply with all settings of the topic."""

    def topic_changing(self, change: TopicChange) -> None:
        """Handle a request to create or delete a topic."""

    def topic_changed(self, change: TopicChange, topic_id: bytes | None) -> None:
        """Handle an acknowledged creation or deletion; with the topic id, if the reply has it."""

    def topics_seen(self, ids: Mapping[str, bytes], asked_at: float) -> None:
        """Handle a reply with all topics."""

    def damage_reported(self, damage: DamageReported) -> None:
        """Handle damage that a broker or a reader found."""

    def corrupted(self, damage: DamageReported) -> None:
        """Handle a fault that damaged these records on the disk."""

    def checkpoint_corrupted(self, partition: int, start_min: int) -> None:
        """Handle a fault that damaged the checkpoint of a log.

        The disk has no segment of the log that begins below `start_min`.
        """

    def process_began(self) -> None:
        """Handle the start of a broker, which has no memory of earlier processes."""

    def disk_failed(self, partition: int | None) -> None:
        """Handle a failed disk call for a file of this log, or of no log."""

    def disk_filled(self) -> None:
        """Handle a disk that became full."""

    def disk_freed(self) -> None:
        """Handle a disk that has room again."""

    def told(self, partition: int, error: BrokerError, asked_at: float) -> None:
        """Handle an error in the reply to a request about a partition, sent at `asked_at`."""

    def forgotten(self, ends: Mapping[int, int]) -> None:
        """Handle an allowed loss: records at or above these offsets, by partition, are void."""

    def held_up(self, until: float) -> None:
        """Handle a pause: the broker may be late before `until`; `inf` for its next start."""

    def probed(self, event: str, fields: Mapping[str, object]) -> None:
        """Handle an event of the broker."""

    def ended(self, logs: Mapping[int, FinalLog]) -> None:
        """Handle the final logs."""


AnyChecker = TypeVar("AnyChecker", bound=Checker)


@final
class RunHistory:
    """Passes entries on to checkers.

    Invariant: no entry is about records that a crash has made void since the request.
    """

    def __init__(
        self, checkers: Sequence[Checker], now: Callable[[], float], *, goes_on: bool = False
    ) -> None:
        """Start with an empty run history.

        Args:
            checkers: All checkers of the run.
            now: Returns the simulated time.
            goes_on: Whether the run continues after an objection, so that other checkers can
                object.
        """
        self.checkers = checkers
        self.now = now
        self.objections: dict[str, ViolationError] = {}
        """The first objection of each checker, if the run continues."""
        self._goes_on = goes_on
        for checker in checkers:
            checker.now = now
        self.numbers = PartitionNumbers()
        self.acknowledged_count = 0
        self.read_count = 0
        self.start_count = 0
        """Number of starts of the broker."""
        self._forgotten_at = -1.0

    def checker(self, kind: type[AnyChecker]) -> AnyChecker:
        """Return the checker of a class, to read its state."""
        (found,) = (checker for checker in self.checkers if isinstance(checker, kind))
        return found

    def sent(self, record: SentRecord) -> None:
        """See `Checker.sent`."""
        self._tell(lambda checker: checker.sent(record))

    def acknowledged(self, ack: Acknowledged) -> None:
        """See `Checker.acknowledged`; an acknowledgement in memory may be void on arrival."""
        self.acknowledged_count += 1
        if ack.asked_at <= self._forgotten_at and ack.level not in DURABLE_LEVELS:
            return
        self._tell(lambda checker: checker.acknowledged(ack))

    def refused(self, record: SentRecord) -> None:
        """See `Checker.refused`."""
        self._tell(lambda checker: checker.refused(record))

    def fetched(self, fetched: Fetched) -> None:
        """See `Checker.fetched`; a reply from before a loss may be about lost records."""
        self.read_count += len(fetched.records)
        if fetched.asked_at <= self._forgotten_at:
            return
        self._tell(lambda checker: checker.fetched(fetched))

    def consumed(self, consumed: Consumed) -> None:
        """See `Checker.consumed`."""
        self._tell(lambda checker: checker.consumed(consumed))

    def out_of_range(self, refusal: OutOfRange) -> None:
        """See `Checker.out_of_range`; a reply from before a loss may be about lost records."""
        if refusal.asked_at <= self._forgotten_at:
            return
        self._tell(lambda checker: checker.out_of_range(refusal))

    def truncated(self, partition: int, error: LogTruncatedError) -> None:
        """See `Checker.truncated`."""
        self._tell(lambda checker: checker.truncated(partition, error))

    def looked_up(self, looked_up: LookedUp) -> None:
        """See `Checker.looked_up`."""
        self._tell(lambda checker: checker.looked_up(looked_up))

    def deleting(self, partition: int, before_offset: int | None) -> None:
        """See `Checker.deleting`."""
        self._tell(lambda checker: checker.deleting(partition, before_offset))

    def deleted(self, partition: int, before_offset: int, asked_at: float) -> None:
        """See `Checker.deleted`; if the end was lost meanwhile, it is unknown."""
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
        """See `Checker.probed`; an event about a log carries its partition number."""
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
