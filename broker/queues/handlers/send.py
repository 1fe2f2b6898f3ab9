"""Handler of SEND: appends new messages, and recognizes duplicates.

A send whose batch is new is decided and appended in one go. A task first reads the log if that is
needed, after a change of leaders or for a repeated request.
"""

from collections.abc import Callable, Sequence
from typing import Final, final

import trio

from tidelog.broker.hot.hot_traffic import Sample
from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.queues.handlers.deduplication_windows import (
    DeduplicationWindows,
    PartitionWindow,
    StoredSend,
)
from tidelog.broker.queues.queue_server import QueueServer
from tidelog.broker.requests.purgatory import Purgatory
from tidelog.broker.requests.request_usage import usage_of
from tidelog.broker.requests.response import ResponseHandle
from tidelog.isr.durability import ack_level
from tidelog.queue_layer.commands.fifo_send import (
    SendDecision,
    check_standard,
    chosen,
    messages_of,
    places_in,
)
from tidelog.wire.batch.batch_columns import ALL_COLUMNS, SMALL_BYTES, packed_headers, unpack
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.object_walk import check_object_count
from tidelog.wire.batch.record_batch import (
    BatchHeader,
    Columns,
    check_produced,
    encode_batch,
    stamp_append_time,
)
from tidelog.wire.errors import (
    BrokerError,
    InvalidBatchError,
    InvalidRequestError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    RequestTimedOutError,
    ThrottledError,
    WireFormatError,
)
from tidelog.wire.messages.field_types import LIST_LENGTH_MAX
from tidelog.wire.messages.produce import AckLevel, Acks
from tidelog.wire.messages.queues import SendReply, SendRequest

_TIMEOUT_MS_MAX: Final = 10 * 60 * 1000
_LENGTH_MAX: Final = 1 << 20
"""Bytes to which a compressed batch may unpack."""
_OBJECTS_MAX: Final = 6_000
"""Maximum headers of a batch and their parts, if they are large."""
_CODECS: Final = {int(codec): codec for codec in Codec}


@final
class PendingSend:
    """A send that waits for its reply."""

    def __init__(self, request: SendRequest, batch: memoryview, response: ResponseHandle) -> None:
        """Check and decode the sent batch.

        Raises:
            BrokerError: The batch is malformed.
        """
        self.request = request
        self.batch = batch
        self.response = response
        self.header = check_produced(batch)
        self.columns = _decode(self.header, batch)
        if self.columns.timestamp_deltas is not None:
            raise InvalidRequestError("messages have no times of their own: the broker gives them")
        self.messages = messages_of(self.columns)
        self.stored: StoredSend | None = None
        """The batch in the log under the same sequence, if it had to be read."""
        self.reading = trio.CancelScope()
        """Scope of the reads before the append; nothing of the send is appended yet."""
        self._reply: SendReply | None = None
        self._purgatory: Purgatory | None = None
        self._appended_at = 0.0
        """Seconds of trio's clock."""

    @property
    def timeout_s(self) -> float:
        """Time in seconds that the client waits."""
        return min(max(self.request.timeout_ms, 0), _TIMEOUT_MS_MAX) / 1000

    def keep(self) -> None:
        """Copy the batch, to keep it longer than the request is being received."""
        self.batch = memoryview(bytearray(self.batch))

    def answer(self, reply: SendReply, partition: Partition, purgatory: Purgatory) -> None:
        """Reply when all messages of the reply are committed, or when the time is over."""
        leader = partition.leader
        assert leader is not None, "the leader cannot change between append and acknowledgement"
        end = max((offset for offset in reply.offsets if offset is not None), default=-1) + 1
        self._reply = reply
        self._purgatory = purgatory
        self._appended_at = trio.current_time()
        if end <= leader.acknowledged_offset(Acks.ALL):
            self.acknowledged(0, ack_level(Acks.ALL, leader.durability))
            return
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
        """Answer that the messages were not committed in time."""
        self.failed(0, RequestTimedOutError("not committed in time; the messages may be kept"))

    def close(self) -> None:
        """Keep waiting: a shutdown waits for acknowledgements."""

    def drop(self) -> None:
        """See `broker.requests.response.DelayedRequest`: an abandoned send is not executed."""
        self.response.context.delayed.pop(self, None)
        self.reading.cancel()
        self.response.nothing()

    def _settle(self) -> SendReply | None:
        reply, self._reply = self._reply, None
        if reply is not None and self._purgatory is not None:
            self._purgatory.done(self)
            self._purgatory.commit_waits.observe(trio.current_time() - self._appended_at)
        return reply


def _decode(header: BatchHeader, batch: memoryview) -> Columns:
    """Return the messages of a batch, unless their decoding would delay other requests.

    Raises:
        RecordTooLargeError: The batch is too large.
        InvalidBatchError: The batch has too many headers, or cannot be decoded.
    """
    length, length_max = header.uncompressed_length, max(header.payload_length, _LENGTH_MAX)
    if header.record_count > LIST_LENGTH_MAX or length > length_max:
        raise RecordTooLargeError(
            f"a request sends {header.record_count:,} messages in {length:,} bytes, the limits are"
            f" {LIST_LENGTH_MAX:,} and {length_max:,}; divide it into smaller requests"
        )
    try:
        plain = unpack(header, batch, length_max)
        if length > SMALL_BYTES:
            # There are as many keys and values as messages; only headers may be many more.
            headers = packed_headers(plain)
            if len(headers) > SMALL_BYTES:
                check_object_count(headers, _OBJECTS_MAX)
        return ALL_COLUMNS.decode_plain(header, plain)
    except WireFormatError as error:
        raise InvalidBatchError(str(error)) from error


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
        require_format: Callable[[BatchHeader], None],
        sample: Sample,
    ) -> None:
        """Append for queues of `server`; park uncommitted sends in `purgatory`.

        `require_format` refuses a batch of a later format version than the cluster allows now.
        """
        self._server = server
        self._windows = windows
        self._group_commit = group_commit
        self._purgatory = purgatory
        self._require_format = require_format
        self._sample = sample

    def handle(
        self, request: SendRequest, attachment: memoryview, response: ResponseHandle
    ) -> None:
        """Append, and reply when the messages are committed.

        Raises:
            BrokerError: Nothing was appended.
        """
        pending = PendingSend(request, attachment, response)
        self._require_format(pending.header)
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
                        "timed out reading earlier sends; nothing was appended, send again"
                    )
            finally:
                delayed.pop(pending, None)

    async def _read(self, pending: PendingSend) -> None:
        """Read the data that a send needs, and carry the send out."""
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
        """Return the partition to append to, and its deduplication window.

        Raises:
            BrokerError: This broker does not accept sends for the partition.
        """
        view = self._server.view(pending.request.queue_id)
        number = pending.request.partition
        partition = self._server.partitions.find(view.source_id, number)
        assert partition.leader is not None, "`find` returns only partitions that are led here"
        partition.leader.require_enough_in_sync(Acks.ALL)
        partition.require_disk()
        return partition, self._windows.find(view, number, partition)

    def _attempt(self, pending: PendingSend, *, is_current: bool) -> bool:
        """Carry out a send; return whether no data must be read first.

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
        """Return the time in milliseconds without sends that follows this one.

        Raises:
            ThrottledError: The send rate is exceeded.
        """
        quota = window.quota
        if quota is None:
            return 0
        wait_ms = quota.wait_ms(now_ms=now_ms)
        if wait_ms:
            raise ThrottledError(
                f"queue {window.view.name!r} takes {quota.tokens_per_s:g} messages a second in"
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
            if pending.response.context.audit.usage is not None:
                _count_usage(pending, window.view.name, len(decision.kept))
            if window.messages is not None:
                window.messages.appended(decision, base_offset)
        kept = set(decision.kept)
        duplicates = len(pending.messages) - len(kept)
        if duplicates:
            self._server.counts.of(window.view.name).duplicates += duplicates
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
        """Append the new messages; return their first offset."""
        leader = partition.leader
        assert leader is not None, "`find` returns only partitions that are led here"
        batch = pending.batch
        if len(decision.kept) < len(pending.messages):
            batch = memoryview(_without(pending.columns, decision.kept, pending.header))
        header = stamp_append_time(batch, decision.time_ms)
        try:
            appended = partition.log.append(
                batch, header, leader_epoch=leader.leader_epoch, now_ms=decision.time_ms
            )
        except BrokerError as error:
            partition.traffic.refused()
            partition.note_status(str(error))
            raise partition.passing(error) from error
        assert not appended.is_duplicate, "a duplicate is answered before"
        partition.traffic.received(header)
        self._group_commit.appended(partition)
        partition.progressed()
        self._sample(partition, header, batch)
        return appended.base_offset

    def _repeat(self, pending: PendingSend, window: PartitionWindow) -> None:
        """Answer a request whose batch was appended before.

        Raises:
            OutOfOrderSequenceError: Another batch has the same sequence.
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
        self._server.counts.of(window.view.name).duplicates += len(pending.messages)
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


def _count_usage(pending: PendingSend, queue: str, messages: int) -> None:
    usage = usage_of(pending.response.context)
    if usage is not None:
        usage.sent_to_queue(queue, messages=messages, byte_count=pending.header.size)


def _without(columns: Columns, kept: Sequence[int], header: BatchHeader) -> bytearray:
    """Return a batch with a selection of its records."""
    return encode_batch(
        chosen(columns, kept),
        first_timestamp_ms=header.first_timestamp_ms,
        codec=_CODECS[header.codec],
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        format_version=header.format_version,
    )
