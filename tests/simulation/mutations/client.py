"""Mutations of the client: retries, receipts, and skipped records."""

# A mutation replaces private parts of the code.
# pyright: reportPrivateUsage=false

from typing import Final

from tests.simulation.mutations.mutation import Mutation
from tidelog.client.consumer.consumer import Consumer
from tidelog.client.consumer.fetch.fetch_state import Fetch, FetchState, PartitionFetchState
from tidelog.client.consumer.fetch.fetcher import Fetcher
from tidelog.client.producer.partition_batches import PartitionBatches
from tidelog.client.producer.producer_batch import ProducerBatch
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.batch.record_batch import restamp_producer
from tidelog.wire.messages.produce import AckLevel
from tidelog.wire.transport.rpc import Outcome

_insert_unsent = PartitionBatches._insert_unsent


def _insert_as_new(self: PartitionBatches, batch: ProducerBatch) -> None:
    if batch.has_sequence and self.identity is not None:
        batch.base_sequence = self._next_sequence
        self._next_sequence += batch.record_count
        restamp_producer(
            batch.encoded,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            base_sequence=batch.base_sequence,
        )
    _insert_unsent(self, batch)


_fail = PartitionBatches._fail


def _fail_without_doubt(self: PartitionBatches, batch: ProducerBatch, error: Exception) -> None:
    batch.is_ambiguous = False
    _fail(self, batch, error)


_settle = ProducerBatch.settle


def _settle_as_done(
    self: ProducerBatch,
    failure: Exception | None,
    base_offset: int | None,
    ack_level: AckLevel | None,
) -> None:
    del failure
    _settle(self, None, base_offset, ack_level)


_refused = FetchState._refused


def _refused_and_skipped(
    self: FetchState, state: PartitionFetchState, error: Exception, now: float
) -> None:
    state.fetch_offset += 1
    _refused(self, state, error, now)


_on_complete = Fetcher._on_complete


def _complete_or_fall_asleep(self: Fetcher, fetch: Fetch, outcome: Outcome) -> None:
    if isinstance(outcome, Exception):
        del self._in_flight_fetches[fetch]  # Its partitions stay marked as in flight.
    else:
        _on_complete(self, fetch, outcome)


_end_offsets = Consumer.end_offsets


async def _end_offsets_of_nothing(self: Consumer) -> dict[TopicPartition, int]:
    return dict.fromkeys(await _end_offsets(self), 0)


MUTATIONS: Final = (
    Mutation(
        "retry-as-new",
        "a batch that is sent again gets a new sequence",
        (PartitionBatches, "_insert_unsent", _insert_as_new),
    ),
    Mutation(
        "sequence-of-doubtful-reused",
        "the sequence of a batch that may be in the log is given to the next one",
        (PartitionBatches, "_fail", _fail_without_doubt),
    ),
    Mutation(
        "receipt-for-failed",
        "a batch that failed gets a receipt",
        (ProducerBatch, "settle", _settle_as_done),
    ),
    Mutation(
        "skip-after-reconnect",
        "a consumer skips a record after a failed fetch",
        (FetchState, "_refused", _refused_and_skipped),
    ),
    Mutation(
        "asleep-after-loss",
        "a consumer does not repeat fetches that were lost with their connection",
        (Fetcher, "_on_complete", _complete_or_fall_asleep),
    ),
    Mutation(
        "end-too-early",
        "the end offset of a log is its start offset",
        (Consumer, "end_offsets", _end_offsets_of_nothing),
    ),
)
"""Mutations of the client."""
