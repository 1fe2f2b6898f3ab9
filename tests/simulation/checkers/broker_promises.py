"""What a broker says of itself must agree with what the world did to it."""

from collections.abc import Mapping
from typing import final

from tests.simulation.checkers.book import (
    Acknowledged,
    Checker,
    DamageReported,
    Fetched,
    FinalLog,
)


@final
class DurableStays(Checker):
    """A log that is opened has everything that was once said to be on its disk.

    Definition: at every start of a broker, for every partition, the log end offset is at least
    the largest durable end offset that any earlier flush of it has announced.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self.durable_ends: dict[int, int] = {}
        """By partition: what was announced so far."""

    def probed(self, event: str, fields: Mapping[str, object]) -> None:
        """See `Checker`."""
        if event == "log_flushed":
            partition, end = _number(fields, "partition"), _number(fields, "durable_end_offset")
            self.durable_ends[partition] = max(end, self.durable_ends.get(partition, 0))
        elif event == "log_opened":
            partition, end = _number(fields, "partition"), _number(fields, "log_end_offset")
            durable_end = self.durable_ends.get(partition, 0)
            if end < durable_end:
                self.fail(
                    f"partition {partition} was on disk up to {durable_end} and ends at {end}"
                )
            self.durable_ends[partition] = end


@final
class CleanStopKeeps(Checker):
    """A clean stop loses nothing, however little a topic asks for: not even if the power goes.

    Definition: when a broker says that it has stopped cleanly, all that was acknowledged before,
    or seen below a high watermark, lies below the durable end of its partition, and the next
    start finds the log no shorter.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self._known_ends: dict[int, int] = {}
        """By partition: the end of what somebody knows to be there."""
        self._durable_ends: dict[int, int] = {}
        self._was_clean = False

    def is_owed(self) -> bool:
        """Return whether anything that somebody knows of is in memory only."""
        return any(
            end > self._durable_ends.get(partition, 0)
            for partition, end in self._known_ends.items()
        )

    def acknowledged(self, ack: Acknowledged) -> None:
        """See `Checker`."""
        if ack.offset is not None:
            self._know(ack.record.partition, ack.offset + 1)

    def fetched(self, fetched: Fetched) -> None:
        """See `Checker`."""
        self._know(fetched.partition, fetched.high_watermark)

    def forgotten(self, ends: Mapping[int, int]) -> None:
        """See `Checker`."""
        for partition, end in ends.items():
            self._known_ends[partition] = min(end, self._known_ends.get(partition, 0))

    def probed(self, event: str, fields: Mapping[str, object]) -> None:
        """See `Checker`."""
        if event == "log_flushed":
            self._durable_ends[_number(fields, "partition")] = _number(fields, "durable_end_offset")
        elif event == "broker_stopped":
            self._was_clean = bool(fields["is_clean"])
            if self._was_clean:
                self._check(self._durable_ends, "a clean stop leaves on disk")
        elif event == "broker_started":
            if self._was_clean:
                self._check(self._durable_ends, "a start after a clean stop finds")
            self._was_clean = False
        elif event == "log_opened":
            self._durable_ends[_number(fields, "partition")] = _number(fields, "log_end_offset")

    def _know(self, partition: int, end: int) -> None:
        self._known_ends[partition] = max(end, self._known_ends.get(partition, 0))

    def _check(self, ends: Mapping[int, int], who: str) -> None:
        for partition, known_end in self._known_ends.items():
            end = ends.get(partition, 0)
            if end < known_end:
                self.fail(
                    f"{who} partition {partition} up to {end}; up to {known_end} it was"
                    " acknowledged or could be read"
                )


@final
class LogStartRises(Checker):
    """No reader sees the log start fall, except from one start of the broker to the next.

    What a power cut does to names may bring back segments that retention had removed.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self._seen: dict[int, dict[str, int]] = {}
        self._opened_at: dict[int, float] = {}

    def fetched(self, fetched: Fetched) -> None:
        """See `Checker`."""
        if fetched.asked_at <= self._opened_at.get(fetched.partition, 0.0):
            return  # The answer may be that of the broker before.
        seen = self._seen.setdefault(fetched.partition, {})
        if fetched.log_start_offset < seen.get(fetched.reader, 0):
            self.fail(
                f"{fetched.reader} saw the start of partition {fetched.partition} fall from"
                f" {seen[fetched.reader]} to {fetched.log_start_offset}"
            )
        seen[fetched.reader] = fetched.log_start_offset
        if not fetched.log_start_offset <= fetched.high_watermark:
            self.fail(
                f"partition {fetched.partition} starts at {fetched.log_start_offset}, above its"
                f" high watermark {fetched.high_watermark}"
            )

    def probed(self, event: str, fields: Mapping[str, object]) -> None:
        """See `Checker`."""
        if event == "log_opened":
            partition = _number(fields, "partition")
            self._opened_at[partition] = self.now()
            self._seen.pop(partition, None)


@final
class DamageIsReal(Checker):
    """Damage is reported only where the world has damaged something."""

    def __init__(self) -> None:
        """Know nothing."""
        self._rotted: list[DamageReported] = []

    def rotted(self, damage: DamageReported) -> None:
        """See `Checker`."""
        self._rotted.append(damage)

    def damage_reported(self, damage: DamageReported) -> None:
        """See `Checker`."""
        for offset in (damage.offset, damage.next_offset - 1):
            if not any(
                rotted.partition == damage.partition
                and rotted.offset <= offset < rotted.next_offset
                for rotted in self._rotted
            ):
                self.fail(
                    f"partition {damage.partition} is said to be damaged from {damage.offset} to"
                    f" {damage.next_offset}, where nothing has rotted"
                )


@final
class RotIsFound(Checker):
    """What has rotted is reported to who reads it, and never served."""

    def __init__(self) -> None:
        """Know nothing."""
        self._rotted: list[DamageReported] = []

    def rotted(self, damage: DamageReported) -> None:
        """See `Checker`."""
        self._rotted.append(damage)

    def ended(self, logs: Mapping[int, FinalLog]) -> None:
        """See `Checker`."""
        for rotted in self._rotted:
            log = logs[rotted.partition]
            for offset in range(max(rotted.offset, log.log_start_offset), rotted.next_offset):
                if not any(found.offset <= offset < found.next_offset for found in log.damage):
                    self.fail(
                        f"{(rotted.partition, offset)} has rotted, and the last reader was told"
                        f" {log.values.get(offset)!r}"
                    )


@final
class HonestStatus(Checker):
    """A broker complains about its disk only if the disk has given it reason to.

    Definition: a log is read-only only after its disk was made full, and offline only after a
    call to its disk has failed; a broker does not start only then, too.
    """

    def __init__(self) -> None:
        """Know of no faults."""
        self.disk_was_full = False
        """Set by the world."""
        self.disk_has_failed = False
        """Set by the world."""

    def probed(self, event: str, fields: Mapping[str, object]) -> None:
        """See `Checker`."""
        status = fields.get("status")
        if event == "log_status_changed":
            if status == "read-only" and not self.disk_was_full:
                self.fail(f"read-only with an empty disk: {fields.get('reason')}")
            if status == "offline" and not self.disk_has_failed:
                self.fail(f"offline with a healthy disk: {fields.get('reason')}")
        elif event == "broker_failed" and not (self.disk_was_full or self.disk_has_failed):
            self.fail(f"does not start with a healthy disk: {fields.get('reason')}")


def _number(fields: Mapping[str, object], name: str) -> int:
    value = fields[name]
    assert isinstance(value, int)
    return value
