"""Checkers of a partition's promises to producers and consumers."""

from collections import Counter
from collections.abc import Mapping
from typing import final

import pytest

from tests.simulation.broker.keys import Superseded
from tests.simulation.checkers.run_history import (
    DURABLE_LEVELS,
    Acknowledged,
    Checker,
    DamageReported,
    Fetched,
    FinalLog,
    LookedUp,
    OutOfRange,
    Place,
    ProducerRules,
    SentRecord,
)


@pytest.mark.invariant("I1")
@final
class StableOffsets(Checker):
    """One offset, one value: for all readers, forever, across restarts.

    The map from (partition, offset) to value is a function, over all acknowledgements and reads,
    except where an allowed loss has made them void.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self._values: dict[Place, bytes] = {}

    def acknowledged(self, ack: Acknowledged) -> None:
        """See `Checker`."""
        if ack.offset is not None:
            self._note((ack.record.partition, ack.offset), ack.record.value, "acknowledged")

    def fetched(self, fetched: Fetched) -> None:
        """See `Checker`."""
        for offset, value in fetched.records:
            self._note((fetched.partition, offset), value, f"read by {fetched.reader}")

    def forgotten(self, ends: Mapping[int, int]) -> None:
        """See `Checker`."""
        self._values = {
            place: value
            for place, value in self._values.items()
            if place[1] < ends.get(place[0], place[1] + 1)
        }

    def _note(self, place: Place, value: bytes, how: str) -> None:
        known = self._values.setdefault(place, value)
        if known != value:
            self.fail(f"{place} was {_short(known)} and is {_short(value)} as {how}")


@pytest.mark.invariant("I2")
@final
class NoDuplicates(Checker):
    """A record has one offset at most, if its producer cannot have sent it twice unnoticed.

    This holds for idempotent producers, and with acks 0, where a producer never resends. A repeated
    acknowledgement has the same offset. Records in deleted segments are excused once the checkpoint
    is corrupt, because the producer state below it is lost. A corrupt record has no offset any more
    and no known producer: the log may accept it again.
    """

    def __init__(self, rules: Mapping[str, ProducerRules]) -> None:
        """Set the rules of each producer."""
        self._rules = rules
        self._places: dict[bytes, Place] = {}
        self._without_checkpoint: set[int] = set()
        self._corrupted: list[DamageReported] = []
        self.unknown_below: dict[int, int] = {}
        """By partition: the offset below which the producer state is lost."""

    def acknowledged(self, ack: Acknowledged) -> None:
        """See `Checker`."""
        rules = self._rules[ack.record.producer]
        if ack.offset is not None and rules.is_idempotent:
            self._note(ack.record.value, (ack.record.partition, ack.offset))

    def checkpoint_corrupted(self, partition: int, start_min: int) -> None:
        """See `Checker`."""
        del start_min
        self._without_checkpoint.add(partition)

    def corrupted(self, damage: DamageReported) -> None:
        """See `Checker`."""
        self._corrupted.append(damage)
        self._places = {
            value: place for value, place in self._places.items() if not _covers(damage, place)
        }

    def probed(self, event: str, fields: Mapping[str, object]) -> None:
        """See `Checker`."""
        if event == "log_opened" and fields["partition"] in self._without_checkpoint:
            partition, start = fields["partition"], fields["log_start_offset"]
            assert isinstance(partition, int)
            assert isinstance(start, int)
            self._without_checkpoint.remove(partition)
            self.unknown_below[partition] = start
            self._places = {
                value: place
                for value, place in self._places.items()
                if place[0] != partition or place[1] >= start
            }

    def fetched(self, fetched: Fetched) -> None:
        """See `Checker`."""
        for offset, value in fetched.records:
            rules = self._rules.get(producer_of(value))
            if rules is not None and (rules.is_idempotent or rules.acks == 0):
                self._note(value, (fetched.partition, offset))

    def forgotten(self, ends: Mapping[int, int]) -> None:
        """See `Checker`."""
        self._places = {
            value: place
            for value, place in self._places.items()
            if place[1] < ends.get(place[0], place[1] + 1)
        }

    def _note(self, value: bytes, place: Place) -> None:
        if any(_covers(damage, place) for damage in self._corrupted):
            return
        known = self._places.setdefault(value, place)
        if known != place:
            self.fail(f"{_short(value)} is at {known} and at {place}")


TRESPASS = b"/must be refused"
"""Suffix of the values of records that a broker must refuse."""


@pytest.mark.invariant("I64")
@final
class NoTrespass(Checker):
    """A batch behind a sequence gap, or with an old producer epoch, is refused.

    Such records are marked. Excused are records of a producer whose batches were all deleted
    when the checkpoint was corrupt: its state is lost.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self._good: dict[str, Place] = {}
        """By producer: the place of its last valid record."""
        self._corrupted: set[int] = set()
        self._unknown_below: dict[int, int] = {}

    def acknowledged(self, ack: Acknowledged) -> None:
        """See `Checker`."""
        record = ack.record
        if ack.offset is not None and not record.value.endswith(TRESPASS):
            self._good[record.producer] = (record.partition, ack.offset)
        self._check(record.partition, record.value, "was acknowledged")

    def fetched(self, fetched: Fetched) -> None:
        """See `Checker`."""
        for _, value in fetched.records:
            self._check(fetched.partition, value, "was read")

    def checkpoint_corrupted(self, partition: int, start_min: int) -> None:
        """See `Checker`."""
        del start_min
        self._corrupted.add(partition)

    def probed(self, event: str, fields: Mapping[str, object]) -> None:
        """See `Checker`."""
        if event == "log_opened" and fields["partition"] in self._corrupted:
            partition, start = fields["partition"], fields["log_start_offset"]
            assert isinstance(partition, int)
            assert isinstance(start, int)
            self._corrupted.remove(partition)
            self._unknown_below[partition] = start

    def _check(self, partition: int, value: bytes, how: str) -> None:
        if value.endswith(TRESPASS) and not self._is_excused(producer_of(value), partition):
            self.fail(f"{_short(value)} {how}")

    def _is_excused(self, producer: str, partition: int) -> bool:
        place = self._good.get(producer)
        return place is not None and place[1] < self._unknown_below.get(partition, 0)


@final
class NothingPhantom(Checker):
    """Every record read was sent, to this partition, and its send has not failed."""

    def __init__(self) -> None:
        """Know nothing."""
        self._sent: dict[bytes, SentRecord] = {}
        self._refused: set[bytes] = set()
        self._read: set[bytes] = set()

    def sent(self, record: SentRecord) -> None:
        """See `Checker`."""
        assert record.value not in self._sent, "values are unique"
        self._sent[record.value] = record

    def refused(self, record: SentRecord) -> None:
        """See `Checker`."""
        if record.value in self._read:
            self.fail(f"{_short(record.value)} was read, and then said to have failed")
        self._refused.add(record.value)

    def fetched(self, fetched: Fetched) -> None:
        """See `Checker`."""
        for offset, value in fetched.records:
            place = (fetched.partition, offset)
            record = self._sent.get(value)
            if record is None:
                self.fail(f"{_short(value)} at {place} was never sent")
            elif record.partition != fetched.partition:
                self.fail(f"{_short(value)} at {place} was sent to partition {record.partition}")
            elif value in self._refused:
                self.fail(f"{_short(value)} at {place} was said to have failed")
            self._read.add(value)


@final
class AcknowledgedStays(Checker):
    """An acknowledged record is at its offset at the end.

    Excused are records below the log start, records that a fault damaged, records that were in
    memory only when an allowed crash came, unless their producer was told that they are
    on disk, records of deleted topics, and records that compaction may remove.
    """

    def __init__(self, superseded: Superseded | None = None) -> None:
        """Set the rules for superseded records; without them no partition is compacted."""
        self._superseded = superseded or Superseded()
        self._acknowledged: dict[Place, bytes] = {}
        self._durable: set[Place] = set()
        self._corrupted: list[DamageReported] = []

    def acknowledged(self, ack: Acknowledged) -> None:
        """See `Checker`."""
        if ack.offset is not None:
            place = (ack.record.partition, ack.offset)
            self._acknowledged[place] = ack.record.value
            if ack.level in DURABLE_LEVELS:
                self._durable.add(place)

    def corrupted(self, damage: DamageReported) -> None:
        """See `Checker`."""
        self._corrupted.append(damage)

    def forgotten(self, ends: Mapping[int, int]) -> None:
        """See `Checker`."""
        self._acknowledged = {
            place: value
            for place, value in self._acknowledged.items()
            if place in self._durable or place[1] < ends.get(place[0], place[1] + 1)
        }

    def ended(self, logs: Mapping[int, FinalLog]) -> None:
        """See `Checker`."""
        lost = [
            (place, value)
            for place, value in self._acknowledged.items()
            if place[0] in logs
            and place[1] >= logs[place[0]].log_start_offset
            and logs[place[0]].values.get(place[1]) != value
            and not any(_covers(damage, place) for damage in self._corrupted)
            and not (
                place[1] not in logs[place[0]].values and self._superseded.covers(place, value)
            )
        ]
        if lost:
            place, value = min(lost)
            self.fail(
                f"{len(lost)} acknowledged records are lost, the first is {_short(value)} at"
                f" {place}; the log goes to {logs[place[0]].high_watermark}"
            )


@final
class ProducerOrder(Checker):
    """Records of one producer are in a partition in the order in which they were sent.

    For an idempotent producer, numbers rise strictly with offsets. Otherwise a repeated record may
    be behind later ones as well. Then its first offset counts, if no record that may have been it
    is missing, and only if it was acknowledged: an abandoned record may still arrive late. With
    acks 0 nothing is promised.
    """

    def __init__(
        self, rules: Mapping[str, ProducerRules], superseded: Superseded | None = None
    ) -> None:
        """Set the rules of each producer, and the rules for superseded records."""
        self._rules = rules
        self._superseded = superseded or Superseded()
        self._acknowledged: set[bytes] = set()

    def acknowledged(self, ack: Acknowledged) -> None:
        """See `Checker`."""
        self._acknowledged.add(ack.record.value)

    def ended(self, logs: Mapping[int, FinalLog]) -> None:
        """See `Checker`."""
        for partition, log in logs.items():
            last: dict[str, int] = {}
            seen: set[bytes] = set()
            is_compacted = partition in self._superseded.partitions
            is_whole = log.log_start_offset == 0 and not log.damage and not is_compacted
            for offset, value in sorted(log.values.items()):
                producer = producer_of(value)
                rules = self._rules[producer]
                is_counted = rules.is_idempotent or (
                    rules.acks != 0
                    and is_whole
                    and value in self._acknowledged
                    and value not in seen
                )
                seen.add(value)
                number = number_of(value)
                if is_counted:
                    if number <= last.get(producer, -1):
                        self.fail(
                            f"{_short(value)} at {(partition, offset)} stands behind number"
                            f" {last[producer]} of its producer"
                        )
                    last[producer] = number


@pytest.mark.invariant("I3")
@final
class Contiguous(Checker):
    """A reader gets every offset: it skips only damage and offsets below the log start.

    A reader whose offset is out of range was indeed below the log start; or above an end that was
    lost, as allowed. The latter happens to readers that read before the loss, and once to each.
    `OnlySupersededGoes` checks missing records in compacted partitions.
    """

    def __init__(self, superseded: Superseded | None = None) -> None:
        """Start without losses; set the rules for superseded records."""
        self._superseded = superseded or Superseded()
        self._loss_counts: Counter[int] = Counter()
        """By partition."""
        self._known_losses: dict[tuple[str, int], int] = {}
        """By reader and partition: the losses that the reader was told of, or that it began
        after."""

    def forgotten(self, ends: Mapping[int, int]) -> None:
        """See `Checker`."""
        self._loss_counts.update(ends.keys())

    def out_of_range(self, refusal: OutOfRange) -> None:
        """See `Checker`."""
        is_below = refusal.offset < refusal.log_start_offset
        is_above = refusal.offset > refusal.log_end_offset
        key, loss_count = (refusal.reader, refusal.partition), self._loss_counts[refusal.partition]
        if not is_below and not (is_above and loss_count > self._known_losses.get(key, 0)):
            self.fail(
                f"{refusal.reader} was refused {(refusal.partition, refusal.offset)}, and the log"
                f" goes from {refusal.log_start_offset} to {refusal.log_end_offset}"
            )
        self._known_losses[key] = loss_count

    def fetched(self, fetched: Fetched) -> None:
        """See `Checker`."""
        key = (fetched.reader, fetched.partition)
        self._known_losses.setdefault(key, self._loss_counts[fetched.partition])
        expected = max(fetched.fetch_offset, 0)
        for offset, _ in fetched.records:
            is_sparse = fetched.partition in self._superseded.partitions
            if offset < expected or (offset > expected and not is_sparse):
                self.fail(
                    f"{fetched.reader} asked partition {fetched.partition} for {expected} and got"
                    f" {offset}"
                )
            expected = offset + 1


@pytest.mark.invariant("I24")
@final
class TimeIsFound(Checker):
    """A timestamp leads to the first record with that timestamp or a later one.

    It is the first by offset, whatever the order of timestamps is. The offset itself may have no
    record, if the next one is the record in question: compaction removes records.
    """

    def looked_up(self, looked_up: LookedUp) -> None:
        """See `Checker`."""
        end = looked_up.end_offset
        young = (offset for offset, at in looked_up.times if at >= looked_up.timestamp_ms)
        expected = next(young, end)
        begins = end if looked_up.offset is None else looked_up.offset
        led_to = next((offset for offset, _ in looked_up.times if offset >= begins), end)
        if begins > end or led_to != expected:
            self.fail(
                f"time {looked_up.timestamp_ms} of partition {looked_up.partition} leads to"
                f" {looked_up.offset}, the first record of it or later is at {expected}"
            )


@pytest.mark.invariant("I37")
@final
class BelowHighWatermark(Checker):
    """No reader gets a record at or above the high watermark of the same reply."""

    def fetched(self, fetched: Fetched) -> None:
        """See `Checker`."""
        for offset, _ in fetched.records:
            if offset >= fetched.high_watermark:
                self.fail(
                    f"{fetched.reader} read {(fetched.partition, offset)}, the high watermark is"
                    f" {fetched.high_watermark}"
                )


@final
class HighWatermarkRises(Checker):
    """No reader sees the high watermark fall, nor below a record acknowledged before its request.

    Also across restarts: records that are void after an allowed loss were excluded before.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self._seen: dict[tuple[str, int], int] = {}
        self._acknowledged_ends: dict[int, list[tuple[float, int]]] = {}

    def acknowledged(self, ack: Acknowledged) -> None:
        """See `Checker`."""
        if ack.offset is not None:
            ends = self._acknowledged_ends.setdefault(ack.record.partition, [])
            if not ends or ack.offset >= ends[-1][1]:
                ends.append((self.now(), ack.offset + 1))

    def fetched(self, fetched: Fetched) -> None:
        """See `Checker`."""
        key = (fetched.reader, fetched.partition)
        high_watermark = fetched.high_watermark
        if high_watermark < self._seen.get(key, 0):
            self.fail(
                f"{fetched.reader} saw the high watermark of partition {fetched.partition} fall"
                f" from {self._seen[key]} to {high_watermark}"
            )
        self._seen[key] = high_watermark
        for at, end in reversed(self._acknowledged_ends.get(fetched.partition, ())):
            if at < fetched.asked_at:
                if high_watermark < end:
                    self.fail(
                        f"partition {fetched.partition} was acknowledged up to {end}, and then its"
                        f" high watermark is {high_watermark}"
                    )
                break

    def forgotten(self, ends: Mapping[int, int]) -> None:
        """See `Checker`."""
        for (reader, partition), seen in self._seen.items():
            self._seen[reader, partition] = min(seen, ends.get(partition, seen))
        for partition, end in ends.items():
            known = self._acknowledged_ends.get(partition, [])
            self._acknowledged_ends[partition] = [(at, min(each, end)) for at, each in known]


def producer_of(value: bytes) -> str:
    """Return the name of the producer of a record."""
    return value.partition(b"/")[0].decode(errors="replace")


def number_of(value: bytes) -> int:
    """Return the number of a record of its producer and partition."""
    return int(value.split(b"/", 3)[2])


def _covers(damage: DamageReported, place: Place) -> bool:
    return damage.partition == place[0] and damage.offset <= place[1] < damage.next_offset


def _short(value: bytes) -> str:
    return repr(value[:32])
