"""Driver of a queue partition, in the role of its shell, with a journal that is kept."""

from collections.abc import Sequence
from typing import Final

from tidelog.queue_layer.commands.receive import ReceiveCommand
from tidelog.queue_layer.commands.remove import removal_end
from tidelog.queue_layer.frames import FRAME_BYTES_MAX
from tidelog.queue_layer.ordering.delivery_order import MakeOrder, RecordFields
from tidelog.queue_layer.ordering.standard_order import StandardOrder
from tidelog.queue_layer.outcome import Outcome, Reply
from tidelog.queue_layer.queue_partition import QueuePartition
from tidelog.queue_layer.receipts import Receipts
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.messages.queue_journal import JournalFrame, decode, encode
from tidelog.wire.messages.queues import (
    MessageState,
    PartitionReceived,
    Refused,
    Run,
    SettleAction,
    Settled,
    Settlement,
)

QUEUE_ID: Final = bytes(range(16))
KEY: Final = b"a secret of the queue"
TARGET: Final = (b"dead letter topic", 3)
START_MS: Final = 1_700_000_000_000
SECOND: Final = 1000


def offsets_of(runs: Sequence[Run]) -> list[int]:
    """Return every offset of some runs."""
    return [first + place for first, count in runs for place in range(count)]


class Driver:
    """One partition of a queue, its journal, and a clock that the test sets."""

    def __init__(
        self,
        config: QueueConfig | None = None,
        *,
        records: int = 0,
        make_order: MakeOrder = StandardOrder,
    ) -> None:
        self.config = config or QueueConfig()
        self.now_ms = START_MS
        self.leader_epoch = 0
        self.journal: list[bytes] = []
        self.told: list[tuple[int, int, Sequence[RecordFields] | None, int]] = []
        self.receipts = Receipts(queue_id=QUEUE_ID, partition=7, key=KEY)
        self._make_order = make_order
        self.queue = self.new_queue()
        self.do(self.queue.seek(0, now_ms=self.now_ms))
        self.queue.start(self.now_ms, leader_epoch=self.leader_epoch)
        if records:
            self.came(records)

    def new_queue(self) -> QueuePartition:
        return QueuePartition(self.config, self.receipts, self._make_order)

    def came(
        self,
        count: int = 1,
        *,
        fields: Sequence[RecordFields] | None = None,
        deliver_at_ms: int = 0,
    ) -> None:
        """Commit records."""
        first = self.told[-1][1] if self.told else 0
        self.told.append((first, first + count, fields, deliver_at_ms))
        self.queue.state.on_records(first, first + count, fields, deliver_at_ms=deliver_at_ms)

    def on_chunks(self, count: int) -> None:
        """Commit chunks of large messages, whose batches are marked as such."""
        first = self.told[-1][1] if self.told else 0
        self.told.append((first, first + count, [RecordFields(is_chunk=True)] * count, 0))
        self.queue.state.on_chunks(first, first + count)

    def do(self, outcome: Outcome[Reply]) -> Reply:
        """Append the entries of an outcome, and apply them; then those of exhausted messages."""
        for frame in outcome.frames:
            self.append(frame)
        self.dead_letter_exhausted()
        return outcome.reply

    def dead_letter_exhausted(self) -> None:
        """Make messages dead letters that had all their deliveries, in as many steps as needed."""
        while self.queue.state.exhausted:
            for frame in self.queue.dead_letter_exhausted(now_ms=self.now_ms).frames:
                self.append(frame)

    def append(self, frame: JournalFrame) -> None:
        data = encode(frame)
        assert len(data) <= FRAME_BYTES_MAX
        self.journal.append(data)
        self.queue.state.apply(decode(data))

    def wait(self, ms: int) -> None:
        """Let time pass."""
        self.now_ms += ms
        self.queue.state.advance(self.now_ms)
        self.dead_letter_exhausted()

    def take(
        self, max_messages: int = 10, *, timeout_ms: int | None = None, holder: str = ""
    ) -> PartitionReceived:
        """Receive messages, all that are offered."""
        command = ReceiveCommand(
            max_messages=max_messages, visibility_timeout_ms=timeout_ms, holder=holder
        )
        plan = self.queue.plan(command, now_ms=self.now_ms)
        taken = [(run.first_offset, run.count) for run in plan]
        return self.do(self.queue.receive(plan, taken, now_ms=self.now_ms))

    def offsets(self, max_messages: int = 10, *, timeout_ms: int | None = None) -> list[int]:
        """Receive messages and return their offsets."""
        received = self.take(max_messages, timeout_ms=timeout_ms)
        return offsets_of([(run.first_offset, run.count) for run in received.runs])

    def settle(
        self,
        received: PartitionReceived,
        action: SettleAction,
        *offsets: int,
        delay_ms: int | None = None,
        reason: str = "",
    ) -> Settled:
        """Settle messages of a receive, all of them by default."""
        runs = [(offset, 1) for offset in offsets] or [
            (run.first_offset, run.count) for run in received.runs
        ]
        settlement = Settlement(7, received.receipt, runs, action, delay_ms, reason)
        return self.do(self.queue.settle(settlement, now_ms=self.now_ms))

    def delete(self, received: PartitionReceived, *offsets: int) -> Settled:
        return self.settle(received, SettleAction.DELETE, *offsets)

    def cancel(self, runs: list[Run]) -> list[Refused]:
        """Cancel delayed messages, in as many steps as needed."""
        refused: list[Refused] = []
        while runs:
            done = self.do(self.queue.cancel(runs, now_ms=self.now_ms))
            refused, runs = refused + done.refused, done.rest
        return refused

    def purge(self) -> int:
        """Purge all known messages, in as many steps as needed; return their number."""
        count, end = 0, self.queue.state.records_from
        while True:
            stop = removal_end(self.queue.state, self.queue.state.low_water_mark, end)
            count += self.do(self.queue.purge(stop, now_ms=self.now_ms))
            if stop >= end:
                return count

    def counts(self) -> dict[str, int]:
        """Return the counts by name, without those that are 0."""
        self.queue.state.advance(self.now_ms)
        counts = zip(MessageState, self.queue.state.counts(), strict=False)
        return {state.name.lower(): count for state, count in counts if count}

    def fail_over(self, *, lost: int = 0, is_told: bool = True) -> None:
        """Fail over to another broker, which applies the journal and reads the same records.

        The last `lost` frames are missing; without `is_told`, records are reported later.
        """
        del self.journal[len(self.journal) - lost :]
        self.queue = self.new_queue()
        for data in self.journal:
            self.queue.state.apply(decode(data))
        self.leader_epoch += 1
        self.queue.start(self.now_ms, leader_epoch=self.leader_epoch)
        self.dead_letter_exhausted()
        if is_told:
            self.tell_again()

    def tell_again(self) -> None:
        """Report all records that the queue needs."""
        for first, end, fields, deliver_at_ms in self.told:
            start = max(first, self.queue.state.records_from)
            if start < end:
                kept = None if fields is None else fields[start - first :]
                self.queue.state.on_records(start, end, kept, deliver_at_ms=deliver_at_ms)
