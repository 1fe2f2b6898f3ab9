"""Sending messages: what is new is appended, and what was sent before is found.

Of a send whose batch was not appended before, all is decided and done in one go. What has to be
read first, after a change of leaders or when a request is repeated, is read in a task.
"""

from collections.abc import Sequence
from typing import Final, final

import trio

from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.queues.handlers.deduplication_windows import (
    DeduplicationWindows,
    PartitionWindow,
    StoredSend,
    columns_of,
)
from tidelog.broker.queues.queue_server import QueueServer
from tidelog.broker.requests.purgatory import Purgatory
from tidelog.broker.requests.response import ResponseHandle
from tidelog.isr.durability import ack_level
from tidelog.queue_layer.commands.fifo_send import (
    SendDecision,
    check_standard,
    chosen,
    messages_of,
    places_in,
)
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import (
    BatchHeader,
    Columns,
    check_produced,
    encode_batch,
    stamp_append_time,
)
from tidelog.wire.errors import (
    BrokerError,
    InvalidRequestError,
    OutOfOrderSequenceError,
    RequestTimedOutError,
    ThrottledError,
)
from tidelog.wire.messages.produce import AckLevel, Acks
from tidelog.wire.messages.queues import SendReply, SendRequest

_TIMEOUT_MS_MAX: Final = 10 * 60 * 1000
_CODECS: Final = {int(codec): codec for codec in Codec}


@final
class PendingSend:
    """A send on its way to its reply."""

    def __init__(self, request: SendRequest, batch: memoryview, response: ResponseHandle) -> None:
        """Check and decode what was sent.

        Raises:
            BrokerError: It cannot be understood.
        """
        self.request = request
        self.batch = batch
        self.response = response
        self.header = check_produced(batch)
        self.columns = columns_of(self.header, batch)
        if self.columns.timestamp_deltas is not None:
            raise InvalidRequestError("messages have no times of their own: the broker gives them")
        self.messages = messages_of(self.columns)
        self.stored: StoredSend | None = None
        """What is in the log under the same sequence, if that had to be looked up."""
        self.reading = trio.CancelScope()
        """While something is read for it; nothing of it is appended yet."""
        self._reply: SendReply | None = None
        self._purgatory: Purgatory | None = None

    @property
    def timeout_s(self) -> float:
        """How long whoever sent it waits."""
        return min(max(self.request.timeout_ms, 0), _TIMEOUT_MS_MAX) / 1000

    def keep(self) -> None:
        """Have the batch for longer than the request is being received."""
        self.batch = memoryview(bytearray(self.batch))

    def answer(self, reply: SendReply, partition: Partition, purgatory: Purgatory) -> None:
        """Reply when all that the reply speaks of is committed, or when the time is over."""
        leader = partition.leader
        assert leader is not None, "nothing has come between"
        end = max((offset for offset in reply.offsets if offset is not None), default=-1) + 1
        self._reply = reply
        if end <= leader.acknowledged_offset(Acks.ALL):
            self.acknowledged(0, ack_level(Acks.ALL, leader.durability))
            return
        self._purgatory = purgatory
        purgatory.add(self, trio.current_time() + self.timeout_s)
        partition.wait_for_ack(Acks.ALL, end, self, index=0)

    def acknowledged(self, index: int, level: AckLevel) -> None:
        """See `broker.partitions.partition.AckWaiter`."""
        del index
        reply = self._settle()
        if reply is not None:
            with self.response:
                self.response.reply(
                    SendReply(
                        reply.offsets,
                        reply.duplicates,
                        level,
                        reply.timestamp_ms,
                        reply.throttle_ms,
                    )
                )

    def failed(self, index: int, error: BrokerError) -> None:
        """See `broker.partitions.partition.AckWaiter`."""
        del index
        if self._settle() is not None:
            self.response.fail(error)

    def expire(self) -> None:
        """Answer that it was not committed in time."""
        self.failed(0, RequestTimedOutError("not committed in time; the messages may be kept"))

    def close(self) -> None:
        """Go on waiting: a shutdown waits for acknowledgements."""

    def drop(self) -> None:
        """See `broker.requests.response.DelayedRequest`: an abandoned send is not executed."""
        self.response.context.delayed.pop(self, None)
        self.reading.cancel()
        self.response.nothing()

    def _settle(self) -> SendReply | None:
        reply, self._reply = self._reply, None
        if self._purgatory is not None:
            self._purgatory.done(self)
        return reply


@final
class SendHandler:
    """Appends messages to the topics of queues."""

    def __init__(
        self,
        server: QueueServer,
        windows: DeduplicationWindows,
        group_commit: GroupCommit,
        *,
        purgatory: Purgatory,
    ) -> None:
        """Append for queues that `server` knows; park what is not committed in `purgatory`."""
        self._server = server
        self._windows = windows
        self._group_commit = group_commit
        self._purgatory = purgatory

    def handle(
        self, request: SendRequest, attachment: memoryview, response: ResponseHandle
    ) -> None:
        """Append, and reply when it is committed.

        Raises:
            BrokerError: Nothing was appended.
        """
        pending = PendingSend(request, attachment, response)
        if not self._attempt(pending, is_current=False):
            pending.keep()
            self._server.nursery.start_soon(self._read_and_attempt, pending)

    async def _read_and_attempt(self, pending: PendingSend) -> None:
        delayed = pending.response.context.delayed
        delayed[pending] = None
        with pending.response:
            try:
                pending.reading.deadline = trio.current_time() + pending.timeout_s
                with pending.reading:
                    await self._read(pending)
                if pending.reading.cancelled_caught and pending in delayed:
                    raise RequestTimedOutError(
                        "what was sent before could not be read in time; nothing was appended"
                    )
            finally:
                delayed.pop(pending, None)

    async def _read(self, pending: PendingSend) -> None:
        """Read what is needed to carry out a send, and carry it out."""
        while not self._attempt(pending, is_current=False):
            partition, window = self._find(pending)
            found = partition.log.producers.find(pending.header)
            if found is not None:
                pending.stored = await self._windows.stored(window, found.base_offset)
            else:
                await self._windows.load(window)
                if self._attempt(pending, is_current=True):
                    return

    def _find(self, pending: PendingSend) -> tuple[Partition, PartitionWindow]:
        """Return where to append, and what was sent there before.

        Raises:
            BrokerError: Nothing can be sent here.
        """
        view = self._server.view(pending.request.queue_id)
        number = pending.request.partition
        partition = self._server.partitions.find(view.source_id, number)
        assert partition.leader is not None, "it was found, so it is led here"
        partition.leader.require_enough_in_sync(Acks.ALL)
        partition.require_disk()
        return partition, self._windows.find(view, number, partition)

    def _attempt(self, pending: PendingSend, *, is_current: bool) -> bool:
        """Carry out a send; return whether that needed nothing that must be read first.

        Args:
            pending: The send.
            is_current: Whether the window was made current just now.

        Raises:
            BrokerError: Nothing was appended.
        """
        partition, window = self._find(pending)
        found = partition.log.producers.find(pending.header)
        if found is not None:
            if pending.stored is None or pending.stored.base_offset != found.base_offset:
                return False
            self._repeat(pending, window)
            return True
        is_loaded = window.messages is not None or not window.view.is_fifo
        if not (is_loaded and (is_current or self._windows.is_current(window))):
            return False
        now_ms = self._server.env.clock.now_ms()
        throttle_ms = self._throttle(window, len(pending.messages), now_ms)
        self._append(pending, window, now_ms, throttle_ms=throttle_ms)
        return True

    def _throttle(self, window: PartitionWindow, count: int, now_ms: int) -> int:
        """Return how long nobody is to send after this.

        Raises:
            ThrottledError: This comes too early.
        """
        quota = window.quota
        if quota is None:
            return 0
        wait_ms = quota.wait_ms(now_ms=now_ms)
        if wait_ms:
            raise ThrottledError(
                f"queue {window.view.name!r} takes {quota.messages_per_s:g} messages a second in"
                f" each partition (send_rate); send again in {wait_ms} ms",
                retry_after_ms=wait_ms,
            )
        quota.take(count)
        return quota.wait_ms(now_ms=now_ms)

    def _append(
        self, pending: PendingSend, window: PartitionWindow, now_ms: int, *, throttle_ms: int
    ) -> None:
        partition = window.partition
        if window.messages is not None:
            decision = window.messages.decide(pending.messages, now_ms=now_ms)
        else:
            check_standard(pending.messages)
            count = len(pending.messages)
            decision = SendDecision(now_ms, [None] * count, [None] * count, range(count))
        base_offset = partition.log.log_end_offset
        if decision.kept:
            base_offset = self._append_kept(pending, partition, decision)
            if window.messages is not None:
                window.messages.appended(decision, base_offset)
        kept = set(decision.kept)
        reply = SendReply(
            [*decision.offsets(base_offset)],
            [place for place in range(len(pending.messages)) if place not in kept],
            0,
            decision.time_ms,
            throttle_ms,
        )
        pending.answer(reply, partition, self._purgatory)

    def _append_kept(
        self, pending: PendingSend, partition: Partition, decision: SendDecision
    ) -> int:
        """Append what is new; return where it begins."""
        leader = partition.leader
        assert leader is not None, "it was found, so it is led here"
        batch = pending.batch
        if len(decision.kept) < len(pending.messages):
            batch = memoryview(_without(pending.columns, decision.kept, pending.header))
        header = stamp_append_time(batch, decision.time_ms)
        try:
            appended = partition.log.append(
                batch, header, leader_epoch=leader.leader_epoch, now_ms=decision.time_ms
            )
        except BrokerError as error:
            partition.note_status(str(error))
            raise partition.passing(error) from error
        assert not appended.is_duplicate, "it was looked for"
        self._group_commit.appended(partition)
        partition.progressed()
        return appended.base_offset

    def _repeat(self, pending: PendingSend, window: PartitionWindow) -> None:
        """Answer a request whose batch was appended before.

        Raises:
            OutOfOrderSequenceError: Another batch was, under the same sequence.
        """
        stored = pending.stored
        assert stored is not None
        places = places_in(pending.messages, stored.messages)
        if places is None:
            raise OutOfOrderSequenceError(
                f"producer {pending.header.producer_id} sent another batch under sequence"
                f" {pending.header.base_sequence} before",
                expected_sequence=pending.header.base_sequence + len(stored.messages),
            )
        now_ms = self._server.env.clock.now_ms()
        offsets: list[int | None] = []
        for message, place in zip(pending.messages, places, strict=True):
            if place is not None:
                offsets.append(stored.base_offset + place)
            elif window.messages is not None:
                offsets.append(window.messages.original_of(message, now_ms=now_ms))
            else:
                offsets.append(None)
        duplicates = [at for at, place in enumerate(places) if place is None]
        reply = SendReply(offsets, duplicates, 0, stored.time_ms)
        pending.answer(reply, window.partition, self._purgatory)


def _without(columns: Columns, kept: Sequence[int], header: BatchHeader) -> bytearray:
    """Return a batch with some of its records only."""
    return encode_batch(
        chosen(columns, kept),
        first_timestamp_ms=header.first_timestamp_ms,
        codec=_CODECS[header.codec],
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
