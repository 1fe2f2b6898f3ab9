"""Checkers that compare a broker's own events with the faults of the run."""

from collections.abc import Mapping
from math import inf
from typing import final

import pytest

from tests.simulation.checkers.run_history import (
    Acknowledged,
    Checker,
    DamageReported,
    Fetched,
    FinalLog,
)
from tidelog.wire.errors import (
    BrokerError,
    CorruptBatchError,
    DiskFullError,
    IneligibleReplicaError,
    LogOfflineError,
    NotControllerError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderError,
    RetriableError,
    ShuttingDownError,
)


@pytest.mark.invariant("I15")
@final
class DurableStays(Checker):
    """A log that is opened has everything that was once announced as durable.

    Definition: at every start of a broker, for every partition, the log end offset is at least
    the largest durable end offset that any earlier flush of it has announced.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self.durable_ends: dict[int, int] = {}
        """By partition: the largest announced durable end offset."""

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


@pytest.mark.invariant("I16")
@final
class CleanStopKeeps(Checker):
    """A clean stop loses no records, at any durability, even if the power fails after it.

    Definition: when a broker reports a clean stop, all records that were acknowledged before,
    or seen below a high watermark, lie below the durable end of their partition, and the next
    start finds the log no shorter.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self._known_ends: dict[int, int] = {}
        """By partition: the end of the records that any client knows of."""
        self._durable_ends: dict[int, int] = {}
        self._was_clean = False

    def is_owed(self) -> bool:
        """Return whether a record that a client knows of is in memory only."""
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

    def _check(self, ends: Mapping[int, int], what: str) -> None:
        for partition, known_end in self._known_ends.items():
            end = ends.get(partition, 0)
            if end < known_end:
                self.fail(
                    f"{what} partition {partition} up to {end}; up to {known_end} it was"
                    " acknowledged or could be read"
                )


@pytest.mark.invariant("I19")
@final
class LogStartRises(Checker):
    """No reader sees the log start fall while a broker runs.

    Nor does it fall at a start after a clean stop, unless the checkpoint became corrupt since. A
    crash may bring back records whose deletion was in progress.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self._seen: dict[int, dict[str, int]] = {}
        self._opened_at: dict[int, float] = {}
        self._was_clean = False

    def fetched(self, fetched: Fetched) -> None:
        """See `Checker`."""
        if fetched.asked_at <= self._opened_at.get(fetched.partition, 0.0):
            return  # The reply may be from the broker before.
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
            if not self._was_clean:
                self._seen.pop(partition, None)
        elif event == "broker_stopped":
            self._was_clean = bool(fields["is_clean"])
        elif event == "broker_started":
            self._was_clean = False

    def checkpoint_corrupted(self, partition: int, start_min: int) -> None:
        """See `Checker`."""
        del start_min
        self._seen.pop(partition, None)


@pytest.mark.invariant("I9")
@final
class DamageIsReal(Checker):
    """Damage is reported only where a fault has damaged bytes."""

    def __init__(self) -> None:
        """Know nothing."""
        self._corrupted: list[DamageReported] = []

    def corrupted(self, damage: DamageReported) -> None:
        """See `Checker`."""
        self._corrupted.append(damage)

    def damage_reported(self, damage: DamageReported) -> None:
        """See `Checker`."""
        for offset in (damage.offset, damage.next_offset - 1):
            if not any(
                corrupted.partition == damage.partition
                and corrupted.offset <= offset < corrupted.next_offset
                for corrupted in self._corrupted
            ):
                self.fail(
                    f"partition {damage.partition} is said to be damaged from {damage.offset} to"
                    f" {damage.next_offset}, where nothing is corrupt"
                )


@final
class CorruptionIsFound(Checker):
    """Corrupt records are reported to their readers, and never served."""

    def __init__(self) -> None:
        """Know nothing."""
        self._corrupted: list[DamageReported] = []

    def corrupted(self, damage: DamageReported) -> None:
        """See `Checker`."""
        self._corrupted.append(damage)

    def ended(self, logs: Mapping[int, FinalLog]) -> None:
        """See `Checker`."""
        for corrupted in self._corrupted:
            log = logs[corrupted.partition]
            for offset in range(max(corrupted.offset, log.log_start_offset), corrupted.next_offset):
                if not any(found.offset <= offset < found.next_offset for found in log.damage):
                    self.fail(
                        f"{(corrupted.partition, offset)} is corrupt, and the last reader was told"
                        f" {log.values.get(offset)!r}"
                    )


_NEVER = (
    CorruptBatchError,
    IneligibleReplicaError,
    NotControllerError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderError,
)
"""Errors that a single broker on a reliable network never returns."""
_LATE_S = 10.0
"""A broker may pause for so long before it reports that there was no room."""


@final
class HonestStatus(Checker):
    """A broker reports disk errors only if the disk has a fault.

    Definition: a log goes offline only if a call for one of its files has failed in this process.
    It goes read-only only if the disk is full, or was a moment ago. A broker fails to start only
    for these reasons, too. A client gets an error about an offline log or a full disk only if that
    was so at some time after its request, and an error about a stop only if the broker stopped. It
    never gets an error that says that the broker is broken, the request was invalid, or another
    broker is in charge.
    """

    def __init__(self) -> None:
        """Start without faults."""
        self._failed_until: dict[int | None, float] = {}
        """By log: end time of the process in which a call for it failed."""
        self._full_until = -inf
        self._stopping_until = -inf

    def process_began(self) -> None:
        """See `Checker`."""
        now = self.now()
        self._failed_until = {log: min(end, now) for log, end in self._failed_until.items()}
        self._stopping_until = min(self._stopping_until, now)

    def disk_failed(self, partition: int | None) -> None:
        """See `Checker`."""
        self._failed_until[partition] = inf

    def disk_filled(self) -> None:
        """See `Checker`."""
        self._full_until = inf

    def disk_freed(self) -> None:
        """See `Checker`."""
        self._full_until = min(self._full_until, self.now())

    def probed(self, event: str, fields: Mapping[str, object]) -> None:
        """See `Checker`."""
        if event == "broker_stopping":
            self._stopping_until = inf
        elif event == "log_status_changed":
            self._status_changed(str(fields["status"]), fields)
        elif event == "broker_failed" and not (
            self._was_full() or inf in self._failed_until.values()
        ):
            self.fail(f"does not start with a healthy disk: {fields.get('reason')}")

    def told(self, partition: int, error: BrokerError, asked_at: float) -> None:
        """See `Checker`."""
        if isinstance(error, LogOfflineError):
            ends = (self._failed_until.get(log, -inf) for log in (partition, None))
            is_honest = max(*ends, self._stopping_until) >= asked_at
        elif isinstance(error, DiskFullError):
            is_honest = self._full_until >= asked_at
        elif isinstance(error, ShuttingDownError):
            is_honest = self._stopping_until >= asked_at
        else:
            is_honest = isinstance(error, RetriableError) and not isinstance(error, _NEVER)
        if not is_honest:
            self.fail(f"a request for partition {partition} got: {error!r}")

    def _status_changed(self, status: str, fields: Mapping[str, object]) -> None:
        log = fields.get("partition")
        assert log is None or isinstance(log, int)
        if status == "read-only" and not self._was_full():
            self.fail(f"read-only with an empty disk: {fields.get('reason')}")
        if status == "offline" and self._failed_until.get(log) != inf:
            self.fail(f"offline with a healthy disk: {fields.get('reason')}")

    def _was_full(self) -> bool:
        return self._full_until >= self.now() - _LATE_S


def _number(fields: Mapping[str, object], name: str) -> int:
    value = fields[name]
    assert isinstance(value, int)
    return value
