"""The audit of one broker: takes events, folds and buffers them, and writes them to a topic.

Shell: owns two tasks, one that writes and one that ends each minute. What is folded, what fits and
what a record says is decided in `fold`, `usage`, `buffer` and `record`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol, final

import trio

from tidelog.broker.audit.buffer import AuditBuffer, BufferedRecord
from tidelog.broker.audit.event import AuditEvent, AuditKind
from tidelog.broker.audit.fold import EventFold, FoldedEvent, is_folded
from tidelog.broker.audit.record import (
    INTENT,
    OUTCOME,
    AuditRecord,
    RecordWriter,
    encode_record,
)
from tidelog.broker.audit.usage import UsageFold
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    AuditUnavailableError,
    BrokerError,
    ConnectionLostError,
    InvalidBatchError,
    InvalidRequestError,
    RecordTooLargeError,
    WireFormatError,
)

INTERVAL_MS: Final = 60_000
"""Time in milliseconds over which events and usage are folded."""
_LINGER_S: Final = 0.1
"""Time in seconds that records wait for others, unless a request waits for them."""
_REQUIRED_S: Final = 5.0
"""Time in seconds that an administrative request waits for its record."""
_RETRY_MIN_S: Final = 0.1
_RETRY_MAX_S: Final = 2.0
_RECORDS_MAX: Final = 1_000
_BATCH_BYTES_MAX: Final = 256 << 10
_REFUSALS: Final = (RecordTooLargeError, InvalidBatchError, InvalidRequestError)
"""Errors by which the topic refuses a batch for good."""


class AuditDestination(Protocol):
    """Takes the records."""

    async def write(self, records: Sequence[BufferedRecord]) -> None:
        """Append records; after an error, the same records are written again.

        Raises:
            BrokerError: They are not appended now.
            ConnectionLostError: The outcome is unknown.
        """
        ...


@final
class AuditLog:
    """The audit events of one broker; see `broker.audit.event.AuditSink`.

    Invariant: each event is in the fold, in the buffer or written, or is counted as lost.
    """

    def __init__(
        self, env: Env, *, node_id: int, is_required: bool, buffer: AuditBuffer | None = None
    ) -> None:
        """Note the events of node `node_id`; `run` writes them."""
        self._env = env
        self._fold = EventFold()
        self._usage = UsageFold()
        self._records = RecordWriter(node_id, env.clock.now_ms())
        self._began_ms = env.clock.now_ms()
        self._changed = trio.Event()
        self._idle = trio.Event()
        self._is_urgent = False
        self._told_lost = 0
        """Lost records of which the log says so."""
        self._recorded_lost = 0
        """Lost records of which a record says so."""
        self.is_required = is_required
        """Whether administrative requests wait for their records (`audit = required`)."""
        self.buffer = AuditBuffer() if buffer is None else buffer
        """Records that are not written yet."""
        self.problem = "nothing was written yet"
        """Reason that records cannot be written now; empty while they can."""
        mode = "required" if is_required else "on"
        self.note(AuditEvent(AuditKind.SERVICE, "audit.start", detail={"audit": mode}))

    @property
    def usage(self) -> UsageFold:
        """Counts of traffic in this minute."""
        return self._usage

    def note(self, event: AuditEvent) -> None:
        """Take an event; never wait, never fail."""
        now_ms = self._env.clock.now_ms()
        if is_folded(event):
            self._fold.add(event, now_ms=now_ms)
        else:
            self._put(self._records.of_event(event, now_ms=now_ms))

    async def begin(self, event: AuditEvent, *, may_pass: bool) -> str:
        """Write the intent of a request before it is carried out; return the id of the record.

        Args:
            event: The request, without result.
            may_pass: Whether the request is carried out although its record is not written.

        Raises:
            AuditUnavailableError: The record was not written in time.
        """
        record = self._records.of_event(event, now_ms=self._env.clock.now_ms(), stage=INTENT)
        written = trio.Event()
        waiting = _buffered(record, on_written=written.set)
        if self.buffer.put(waiting):
            self._is_urgent = True
            self._wake()
            with trio.move_on_after(_REQUIRED_S):
                await written.wait()
                return record.id
        reason = self.problem or "it takes too long"
        if may_pass:
            self._env.probe(
                "audit_bypassed",
                severity="warning",
                principal=record.principal,
                action=record.action,
                resource=record.resource,
                detail=dict(record.detail),
                reason=reason,
            )
            return record.id
        self.buffer.withdraw(waiting)
        refusal = AuditUnavailableError(
            f"{record.action} was not carried out: its audit record cannot be written ({reason});"
            " wait, or repair the topic audit@cluster (audit = required)"
        )
        self.note_outcome(event, refusal.code.name, intent=record.id)
        raise refusal

    def note_outcome(self, event: AuditEvent, result: str, *, intent: str = "") -> None:
        """Take the outcome of an administrative request; `intent` is the id of its intent."""
        now_ms = self._env.clock.now_ms()
        outcome = replace(event, result=result)
        stage = OUTCOME if intent else ""
        self._put(self._records.of_event(outcome, now_ms=now_ms, stage=stage, intent=intent))

    async def run(self, destination: AuditDestination) -> None:
        """Write records until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end_minutes)
            await self._write_all(destination)

    async def finish(self, timeout_s: float) -> None:
        """End the minute, and wait until all records are written, or until the time is over."""
        self._end_minute()
        self._is_urgent = True
        self._wake()
        with trio.move_on_after(timeout_s):
            while len(self.buffer):
                self._idle = trio.Event()
                await self._idle.wait()

    def close(self) -> None:
        """Report the records that are not written as lost: the broker ends."""
        self.buffer.drop(len(self.buffer), is_written=False)
        self._report_lost()

    async def _end_minutes(self) -> None:
        while True:
            left_ms = INTERVAL_MS - self._env.clock.now_ms() % INTERVAL_MS
            await trio.sleep(left_ms / 1000)
            self._end_minute()

    def _end_minute(self) -> None:
        began_ms, self._began_ms = self._began_ms, self._env.clock.now_ms()
        for folded in self._fold.take():
            self._put(self._records.of_folded(folded))
        for principal, resource, usage in self._usage.take():
            self._put(
                self._records.of_usage(
                    principal, resource, usage, first_ms=began_ms, last_ms=self._began_ms
                )
            )
        self._report_lost()

    def _report_lost(self) -> None:
        total = self.buffer.lost
        if total > self._told_lost:
            count, self._told_lost = total - self._told_lost, total
            self._env.probe("audit_lost", severity="error", count=count, reason=self.problem)
        if total > self._recorded_lost:
            now_ms = self._env.clock.now_ms()
            event = AuditEvent(AuditKind.SERVICE, "audit.lost")
            lost = FoldedEvent(event, now_ms, now_ms, total - self._recorded_lost)
            record = _buffered(self._records.of_folded(lost))
            if self.buffer.has_room(record):
                self._recorded_lost = total
                self.buffer.put(record)
                self._wake()

    def _put(self, record: AuditRecord) -> None:
        self.buffer.put(_buffered(record))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()

    async def _write_all(self, destination: AuditDestination) -> None:
        delay_s, batch, count_max = _RETRY_MIN_S, list[BufferedRecord](), _RECORDS_MAX
        while True:
            if not batch:
                await self._wait_for_records()
                batch = self.buffer.take(count_max=count_max, bytes_max=_BATCH_BYTES_MAX)
            try:
                await destination.write(batch)
            except _REFUSALS as error:
                self._note_problem(error)
                if len(batch) > 1:
                    batch = batch[: len(batch) // 2]
                    count_max = len(batch)
                else:
                    self.buffer.drop(1, is_written=False)
                    batch = []
                continue
            except (BrokerError, ConnectionLostError, WireFormatError) as error:
                self._note_problem(error)
                await trio.sleep(delay_s)
                delay_s = min(2 * delay_s, _RETRY_MAX_S)
                continue
            self._note_written(len(batch))
            delay_s, batch, count_max = _RETRY_MIN_S, [], min(2 * count_max, _RECORDS_MAX)

    async def _wait_for_records(self) -> None:
        if not len(self.buffer):
            self._is_urgent = False
            self._idle.set()
        while not len(self.buffer):
            self._changed = trio.Event()
            await self._changed.wait()
        with trio.move_on_after(_LINGER_S):
            while not self._is_urgent:
                self._changed = trio.Event()
                await self._changed.wait()

    def _note_problem(self, error: Exception) -> None:
        if not self.problem:
            self._env.probe("audit_interrupted", severity="warning", reason=str(error))
        self.problem = str(error)

    def _note_written(self, count: int) -> None:
        if self.problem:
            self._env.probe("audit_resumed", waiting=len(self.buffer) - count)
        self.problem = ""
        self.buffer.drop(count, is_written=True)


def _buffered(
    record: AuditRecord, *, on_written: Callable[[], None] | None = None
) -> BufferedRecord:
    return BufferedRecord(encode_record(record), record.principal.encode(), on_written)
