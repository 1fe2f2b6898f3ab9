"""Earlier bugs of queues, and similar ones, as mutations."""

# A mutation replaces private parts of the code.
# pyright: reportPrivateUsage=false

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, Final

from msgspec.structs import replace as replace_field

from tests.simulation.mutations.mutation import Mutation
from tidelog.broker.partitions.log_reader import SliceReader
from tidelog.broker.queues import dead_letter_record as dead_letters
from tidelog.broker.queues.dead_letter_record import DeadLetterRecord
from tidelog.broker.queues.dead_letters import mover
from tidelog.broker.queues.dead_letters.chunk_copy import ChunkCopier
from tidelog.broker.queues.dead_letters.redrive_job import RedriveJob
from tidelog.broker.queues.handlers.send import PendingSend
from tidelog.broker.queues.partition.hosted_partition import HostedPartition
from tidelog.broker.queues.partition.journal import Journal
from tidelog.client.producer.partition_batches import PartitionBatches
from tidelog.client.producer.producer_batch import ProducerBatch
from tidelog.client.queue.receive import settler
from tidelog.client.queue.receive.fifo_dispatch import FifoDispatch
from tidelog.client.queue.receive.lease_extender import HeldMessage
from tidelog.client.queue.receive.worker import QueueWorker
from tidelog.logstore.producer_state import ProducerStates
from tidelog.logstore.segments.segment_list import SegmentList
from tidelog.queue_layer.commands import redrive
from tidelog.queue_layer.commands.redrive import RedriveCommand
from tidelog.queue_layer.state.queue_state import QueueState
from tidelog.wire.batch.record_batch import BatchHeader
from tidelog.wire.errors import DuplicateSequenceError, MessageGoneError
from tidelog.wire.messages.queue_journal import AnyEntry, JournalFrame, RedriveStarted, Target
from tidelog.wire.messages.queues import SettleAction


def _check_known(self: ProducerStates, header: BatchHeader) -> int | None:
    producer = self._producers.get(header.producer_id)
    if producer is None or (
        header.producer_epoch == producer.producer_epoch and not producer.window
    ):
        return None
    return _check(self, header)


_check = ProducerStates.check


def _duplicate_is_there(
    self: PartitionBatches, batch: ProducerBatch, error: Exception, now: float
) -> None:
    if isinstance(error, DuplicateSequenceError):
        self.acknowledge(batch, None, None)
    else:
        _retry_or_fail(self, batch, error, now)


_retry_or_fail = PartitionBatches.retry_or_fail


def _start_without_id(state: QueueState, command: RedriveCommand, to_move: int) -> list[AnyEntry]:
    entries = _start(state, replace(command, redrive_id=b""), to_move)
    return [
        replace_field(each, redrive_id=command.redrive_id)
        if isinstance(each, RedriveStarted)
        else each
        for each in entries
    ]


_start = redrive.start


def _as_known(self: SegmentList, known_ms: Sequence[int], end_ms: int) -> list[int]:
    del self, end_ms
    return list(known_ms)


def _batch_of_old(records: Sequence[DeadLetterRecord], *, now_ms: int, **fields: int) -> bytearray:
    del now_ms
    return _batch_of(records, now_ms=records[0].timestamp_ms, **fields)


_batch_of: Callable[..., bytearray] = dead_letters.batch_of


def _for_ever(_: PendingSend) -> float:
    return 1e6


def _go_on_reading(self: PendingSend) -> None:
    self.response.context.delayed.pop(self, None)


def _deadline_also_in_a_read(self: HostedPartition) -> int | None:
    if not self.waiters or not self.is_loaded or self.error is not None:
        return None
    return self.core.state.next_deadline_ms


async def _caught_up(self: HostedPartition) -> None:
    """Begin at once."""
    del self


async def _load_committed(
    self: Journal, reader: SliceReader, apply: Callable[[JournalFrame], None]
) -> bool:
    offset, high_watermark = self.partition.log.log_start_offset, self.partition.high_watermark

    def apply_committed(frame: JournalFrame) -> None:
        nonlocal offset
        if offset < high_watermark:
            apply(frame)
        offset += 1

    return await _load(self, reader, apply_committed)


_load = Journal.load


def _put_in_no_group(self: FifoDispatch[Any], item: object, group: Hashable | None) -> None:
    del group
    _put(self, item, None)


_put = FifoDispatch[Any].put


def _end_as_if_done(self: QueueWorker, held: HeldMessage, *, is_done: bool) -> None:
    del is_done
    _end(self, held, is_done=True)


_end = QueueWorker._end


async def _as_they_are(
    self: ChunkCopier, records: list[DeadLetterRecord], target: Target
) -> list[DeadLetterRecord]:
    del self, target
    return records


def _never_look(_: RedriveJob) -> None:
    """Redrive nothing."""


MUTATIONS: Final = (
    Mutation(
        "unknown-producer-anywhere",
        "a producer without known state may begin with any sequence",
        (ProducerStates, "check", _check_known),
        (PartitionBatches, "retry_or_fail", _duplicate_is_there),
    ),
    Mutation(
        "damage-taken-for-old",
        "retention treats unreadable records as infinitely old",
        (SegmentList, "_newest_ms", _as_known),
    ),
    Mutation(
        "dead-and-as-old",
        "a dead letter has the timestamp of its message",
        (mover, "batch_of", _batch_of_old),
    ),
    Mutation(
        "given-up-and-sent",
        "an abandoned send is still appended after the window was read",
        (PendingSend, "timeout_s", property(_for_ever)),
        (PendingSend, "drop", _go_on_reading),
    ),
    Mutation(
        "dead-told-as-deleted",
        "a repeated delete of a dead letter is acknowledged",
        (
            settler,
            "_REFUSED_BECAUSE_DONE",
            {**settler._REFUSED_BECAUSE_DONE, SettleAction.DELETE: (MessageGoneError,)},
        ),
    ),
    Mutation(
        "busy-while-reading",
        "a broker checks for ended leases in a busy loop while it reads messages",
        (HostedPartition, "next_deadline_ms", property(_deadline_also_in_a_read)),
    ),
    Mutation(
        "handlers-side-by-side",
        "a worker hands the messages of one group to several handlers at a time",
        (FifoDispatch, "put", _put_in_no_group),
    ),
    Mutation(
        "handlers-go-on",
        "a worker continues with a group after the message before was released",
        (QueueWorker, "_end", _end_as_if_done),
    ),
    Mutation(
        "chunks-not-copied",
        "a large message is moved without its chunks",
        (ChunkCopier, "copied", _as_they_are),
    ),
    Mutation(
        "redrive-left-alone",
        "a redrive is committed, but no broker executes it",
        (RedriveJob, "start_if_running", _never_look),
    ),
    Mutation(
        "redrive-id-forgotten",
        "a repeated start of a redrive that has ended begins another one",
        (redrive, "start", _start_without_id),
    ),
    Mutation(
        "loaded-as-far-as-committed",
        "a new leader reads the journal only up to its known high watermark",
        (HostedPartition, "_wait_until_caught_up", _caught_up),
        (Journal, "load", _load_committed),
    ),
)
"""Mutations that are regressions."""
