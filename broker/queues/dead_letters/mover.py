"""Mover of dead letters: appends each to its target, exactly once over failures.

Shell: owns a task for each target to which a partition of a queue has messages to move. A message
is moved once the decision that it is dead is committed, and deleted here once its batch is
committed at the target. After a failover or a missing reply, the mover asks the target for this
producer's last sequence. No log expires it as long as the queue exists
(`broker.partitions.mover_ids`). If the batch is missing, the mover repeats it under the same
sequence, so that it is appended once even if the first one was only late.
"""

from itertools import islice
from typing import Final, final

import trio

from tidelog.broker.partitions.mover_ids import producer_id_of
from tidelog.broker.queues.dead_letter_record import (
    DeadLetterOrigin,
    DeadLetterRecord,
    as_dead_letter,
    as_it_was,
    batch_of,
    fitting,
)
from tidelog.broker.queues.dead_letters.chunk_copy import ChunkCopier
from tidelog.broker.queues.dead_letters.redrive_job import LOST_DESTINATION, RedriveJob
from tidelog.broker.queues.dead_letters.topic_producer import TopicProducer
from tidelog.broker.queues.partition.hosted_partition import HostedPartition
from tidelog.broker.queues.partition.source_records import UndecodableRecordsError
from tidelog.broker.queues.supervisor import start_supervised
from tidelog.queue_layer.state.pending_dead_letters import DeadLetterBatch
from tidelog.wire.errors import (
    BrokerError,
    ConnectionLostError,
    DuplicateSequenceError,
    InvalidRequestError,
    OutOfOrderSequenceError,
    UnknownTopicError,
    WireFormatError,
)
from tidelog.wire.messages.queue_journal import Target
from tidelog.wire.messages.queues import Run

_RETRY_MIN_S: Final = 0.1
_RETRY_MAX_S: Final = 5.0
_REFUSED_MIN_MS: Final = 60_000
"""Initial backoff in milliseconds for a dead letter that its target rejected; doubles per
attempt."""
_REFUSED_MAX_MS: Final = 15 * 60_000
_DELETED_MS: Final = 1_000
"""Delay in milliseconds of dead letters whose target was deleted: the queue gets another one."""
_REFUSED_KEPT: Final = 10_000
"""Maximum number of dead letters whose number of rejections is remembered."""


@final
class DeadLetterMover:
    """Moves the messages of one partition of a queue."""

    def __init__(
        self, nursery: trio.Nursery, producer: TopicProducer, hosted: HostedPartition
    ) -> None:
        """Move with `producer`; tasks run in `nursery`."""
        self._nursery = nursery
        self._producer = producer
        self._hosted = hosted
        self._under_way: set[Target] = set()
        self._known: set[Target] = set()
        """Targets that have no messages beyond those that the journal records as moved."""
        self._refusals: dict[int, int] = {}
        """Number of rejections of dead letters, by offset; the oldest entry first."""
        self._redrive_job = RedriveJob(nursery, producer, hosted)
        self._chunks = ChunkCopier(hosted.records, producer, hosted.now_ms)

    @property
    def is_moving(self) -> bool:
        """Whether a move is under way."""
        return bool(self._under_way) or self._redrive_job.is_running

    def start_due(self) -> None:
        """Start moves to all targets that have messages."""
        self._redrive_job.start_if_running()
        for target in self._hosted.core.state.moves.targets():
            if target not in self._under_way:
                self._under_way.add(target)
                start_supervised(self._nursery, self._hosted, self._run, target)

    async def _run(self, target: Target) -> None:
        hosted = self._hosted
        delay_s = _RETRY_MIN_S
        try:
            while hosted.error is None:
                batch = hosted.core.state.moves.next_batch(target)
                if batch is None:
                    return
                try:
                    if target in self._known:
                        await self._move(batch)
                    else:
                        await self._query_progress(batch)
                    delay_s = _RETRY_MIN_S
                except (BrokerError, ConnectionLostError, WireFormatError) as error:
                    self._warn(batch, error)
                    await trio.sleep(delay_s)
                    delay_s = min(2 * delay_s, _RETRY_MAX_S)
        finally:
            self._under_way.discard(target)

    def _warn(self, batch: DeadLetterBatch, error: Exception) -> None:
        self._hosted.probe(
            "dead_letters_wait",
            severity="warning",
            topic=self._producer.topic_name(batch.target[0]),
            reason=str(error),
        )

    async def _query_progress(self, batch: DeadLetterBatch) -> None:
        """Determine how much of a batch, the first one of its target, is appended there.

        Raises:
            BrokerError: The target cannot be asked at the moment.
            ConnectionLostError: The same.
        """
        hosted = self._hosted
        try:
            found = await self._producer.progress(batch.target, self._producer_id)
        except UnknownTopicError as error:
            self._refused_by_topic(batch, error)
            return
        hosted.require()
        self._known.add(batch.target)
        if found.producer_epoch == batch.epoch and found.next_sequence is not None:
            count = min(found.next_sequence - batch.sequence, batch.count)
            if count > 0:
                hosted.decide(hosted.core.moved(batch, count, now_ms=hosted.now_ms()))

    async def _move(self, batch: DeadLetterBatch) -> None:
        """Move the first messages of a batch that is not at its target.

        Raises:
            BrokerError: The messages are not moved, or the outcome is unknown: query, and retry.
            ConnectionLostError: The outcome is unknown.
            WireFormatError: The outcome is unknown.
        """
        hosted = self._hosted
        # An uncommitted decision may be lost, and then the message stays in the queue.
        await hosted.wait_committed()
        if not self._is_next(batch):
            return
        log_start_offset = hosted.records.partition().log.log_start_offset
        if log_start_offset > batch.runs[0][0]:
            hosted.require()
            hosted.decide(hosted.core.lost(batch, log_start_offset, now_ms=hosted.now_ms()))
            return
        try:
            records = await hosted.records.read_records(batch.runs)
        except UndecodableRecordsError as error:
            self._on_refused(batch, error.count_in(batch.runs), error)
            return
        if not self._is_next(batch):
            return
        records = self._as_moved(batch, records)
        records = records[: fitting(records)]
        self._known.discard(batch.target)
        count = await self._produce(batch, records)
        self._known.add(batch.target)
        hosted.require()
        self._chunks.settled(batch.target)
        if count:
            hosted.decide(hosted.core.moved(batch, count, now_ms=hosted.now_ms()))

    def _is_next(self, batch: DeadLetterBatch) -> bool:
        """Return whether a batch is still the next to move: it may have been decided otherwise."""
        return self._hosted.core.state.moves.next_batch(batch.target) == batch

    @property
    def _producer_id(self) -> int:
        return producer_id_of(self._hosted.view.queue_id, self._hosted.number)

    async def _produce(self, batch: DeadLetterBatch, records: list[DeadLetterRecord]) -> int:
        """Return how many of the first records are known to be at the target now.

        Raises:
            BrokerError: As for `_move`.
        """
        try:
            whole = await self._chunks.copied(records, batch.target)
            if not self._is_next(batch):
                return 0
            encoded = batch_of(
                whole,
                now_ms=self._hosted.now_ms(),
                producer_id=self._producer_id,
                producer_epoch=batch.epoch,
                base_sequence=batch.sequence,
            )
            await self._producer.produce(batch.target, encoded)
        except DuplicateSequenceError:
            # It was sent longer ago than the target remembers, or split elsewhere: the first record
            # is there.
            return 1
        except (UnknownTopicError, OutOfOrderSequenceError) as error:
            # The topic is deleted, or has lost the earlier sequences: restart in the next epoch.
            self._refused_by_topic(batch, error)
            return 0
        except (InvalidRequestError, UndecodableRecordsError) as error:
            if len(records) > 1:
                return await self._produce(batch, records[:1])
            self._on_refused(batch, 1, error)
            return 0
        return len(records)

    def _on_refused(self, batch: DeadLetterBatch, count: int, error: Exception) -> None:
        """Return messages to the queue whose contents prevent the move.

        After a delay, which grows, those that had all their deliveries are dead letters again.
        """
        if batch.redrive:
            self._fail(batch, count, str(error))
            return
        times = self._refused_times(_first_offsets(batch.runs, count))
        delay_ms = min(_REFUSED_MIN_MS << min(times - 1, 10), _REFUSED_MAX_MS)
        again = f"refused {times} times, tried again after {delay_ms // 60_000} min"
        self._fail(batch, count, f"{error} ({again})", delay_ms=delay_ms)

    def _refused_times(self, offsets: list[int]) -> int:
        """Return the number of rejections of some dead letters, including this one."""
        times = 1 + max(self._refusals.pop(offset, 0) for offset in offsets)
        self._refusals.update(dict.fromkeys(offsets, times))
        while len(self._refusals) > _REFUSED_KEPT:
            del self._refusals[next(iter(self._refusals))]
        return times

    def _refused_by_topic(self, batch: DeadLetterBatch, error: BrokerError) -> None:
        """Return messages to the queue whose target is deleted, or has lost earlier ones."""
        hosted, is_deleted = self._hosted, isinstance(error, UnknownTopicError)
        delay_ms = _DELETED_MS if is_deleted and not batch.redrive else 0
        self._fail(batch, batch.count, str(error), delay_ms=delay_ms)
        if is_deleted:
            lost = hosted.core.redrive_lost_destination
            hosted.decide(lost(batch.redrive, LOST_DESTINATION, now_ms=hosted.now_ms()))

    def _fail(self, batch: DeadLetterBatch, count: int, reason: str, *, delay_ms: int = 0) -> None:
        hosted = self._hosted
        hosted.require()
        hosted.decide(
            hosted.core.move_failed(batch, count, reason, delay_ms=delay_ms, now_ms=hosted.now_ms())
        )

    def _as_moved(
        self, batch: DeadLetterBatch, records: list[DeadLetterRecord]
    ) -> list[DeadLetterRecord]:
        hosted = self._hosted
        view = hosted.view
        topic = self._producer.topic_name(view.source_id)
        origin = DeadLetterOrigin(view.name, topic, hosted.number, view.source_id)
        if batch.redrive:
            return [as_it_was(record, origin) for record in records]
        letters = {
            offset: each
            for each in hosted.core.state.dead_letters(batch)
            for offset in range(each.first_offset, each.first_offset + each.count)
        }
        return [as_dead_letter(record, origin, letters[record.offset]) for record in records]


def _first_offsets(runs: list[Run], count: int) -> list[int]:
    """Return the offsets of the first messages of some runs."""
    offsets = (offset for first, length in runs for offset in range(first, first + length))
    return list(islice(offsets, count))
