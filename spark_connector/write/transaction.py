"""Client of transactions over blocking sockets: stages records, commits and aborts.

Shell: one caller at a time. A task collects records and stages them in rounds: one batch for each
partition, to all leaders at once. A round waits for disks once, regardless of its size, so it
begins when enough bytes wait for a large one. No consumer sees the records before the commit.
"""

import time
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, final

from tidelog.client.topic_partition import TopicPartition
from tidelog.client.transactions.staged_places import (
    Places,
    StagedPlace,
    merged,
    require_same_transaction,
)
from tidelog.spark_connector.connection.broker_connection import BrokerConnection
from tidelog.spark_connector.connection.cluster_client import (
    RETRIED_ERRORS,
    BlockingClusterClient,
)
from tidelog.spark_connector.write.rows import RowBatch
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import encode_batch, format_for
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import (
    BrokerError,
    TidelogError,
    from_wire,
)
from tidelog.wire.messages.produce import InitProducerRequest, PartitionBatch, ProduceReply
from tidelog.wire.messages.transactions import (
    STAGING_PREFIX,
    AbortTransactionRequest,
    BeginTransactionReply,
    BeginTransactionRequest,
    CommitTransactionRequest,
    ListTransactionsRequest,
    StageRequest,
)
from tidelog.wire.protocol import api

TIMEOUT_S: Final = 3600.0
"""Seconds without a begin or renewal by a task, after which brokers abort a transaction."""
_RENEWED_AFTER_S: Final = TIMEOUT_S / 4
_LAST_S_MAX: Final = 300.0
"""Maximum request timeout in seconds of a commit whose name may be forgotten: the cluster keeps the
name for 10 minutes, so that each repeated request of the commit still gets its outcome."""
_ROUND_BYTES: Final = 4 << 20
"""Waiting bytes that start a round, and the limit of a round; only a single batch exceeds it."""

_Batch = tuple[bytearray, int]
"""An encoded batch and the number of its records."""


class _Round(NamedTuple):
    """Batches in flight to their leaders, at most one for each partition."""

    left: dict[TopicPartition, _Batch]
    """Batches without an acknowledgement."""
    sent: list[tuple[BrokerConnection, list[TopicPartition]]]
    """Connections with a reply due, and the partitions of that reply."""
    failures: list[TidelogError]
    """Errors of the batches that were not sent."""


def begin(
    cluster: BlockingClusterClient,
    name: str,
    transaction_id: int,
    *,
    topics: Sequence[str] = (),
    number: int = 0,
) -> BeginTransactionReply:
    """Begin a transaction, or renew it; `number` is that of an open one, if it is known.

    Raises:
        TidelogError: The broker rejected it, or no broker answered.
    """
    timeout_ms = int(TIMEOUT_S * 1000)
    request = BeginTransactionRequest(name, transaction_id, list(topics), timeout_ms, number)
    return cluster.call_any(api.BEGIN_TRANSACTION, request)


def _renewed_after_s(begun: BeginTransactionReply) -> float:
    """Return the seconds from a begin to the next one."""
    return begun.expires_in_ms / 2000 if begun.expires_in_ms else _RENEWED_AFTER_S


def commit(
    cluster: BlockingClusterClient,
    name: str,
    transaction_id: int,
    *,
    number: int,
    places: Iterable[StagedPlace],
    is_last: bool = False,
) -> None:
    """Commit the staged records, which makes them visible; idempotent.

    Args:
        cluster: Brokers.
        name: Name of the transaction.
        transaction_id: Id of the transaction.
        number: Number of the transaction; 0 if it was committed before.
        places: Staged records.
        is_last: Whether only this call knows the name, so that the cluster may soon forget it.
            Otherwise the next transaction of the name begins as well.

    Raises:
        TidelogError: The commit was rejected, or its outcome is unknown; a repeated call tells.
    """
    patience_ms = cluster.options.request_timeout_ms // 2
    request = CommitTransactionRequest(
        name,
        transaction_id,
        number,
        merged(places),
        patience_ms,
        begins_next=not is_last,
        is_last=is_last and cluster.request_timeout_s <= _LAST_S_MAX,
    )
    cluster.call_any(api.COMMIT_TRANSACTION, request)


def committed_at_ms(cluster: BlockingClusterClient, name: str, transaction_id: int) -> int | None:
    """Return when a transaction was committed, in Unix milliseconds; `None` if that is not known.

    It is not known any more when another transaction of the name was begun or committed since.

    Raises:
        TidelogError: No broker answered.
    """
    reply = cluster.call_any(api.LIST_TRANSACTIONS, ListTransactionsRequest([name]))
    for found in reply.transactions:
        if found.last_transaction_id == transaction_id and found.open_transaction_id is None:
            return found.last_used_ms
    return None


def abort(cluster: BlockingClusterClient, name: str, transaction_id: int, *, number: int) -> bool:
    """Abort a transaction; return True if it was committed before, and stays committed.

    Raises:
        TidelogError: No broker answered.
    """
    request = AbortTransactionRequest(name, transaction_id, number)
    return cluster.call_any(api.ABORT_TRANSACTION, request).is_committed


@final
class StagingTask:
    """Stager of one task attempt's records; unusable after a failure."""

    def __init__(
        self,
        cluster: BlockingClusterClient,
        name: str,
        transaction_id: int,
        *,
        codec: Codec,
        stage_timeout_ms: int,
    ) -> None:
        """Begin the transaction, or join it.

        Raises:
            StaleTransactionError: A transaction with a higher id was begun or committed.
            TidelogError: The broker rejected it, or no broker answered.
        """
        self._cluster = cluster
        self._name = name
        self._transaction_id = transaction_id
        self._codec = codec
        self._stage_timeout_ms = stage_timeout_ms
        begun_at = time.monotonic()
        begun = begin(cluster, name, transaction_id)
        self.number = begun.number
        """Number of the transaction; 0 if it was committed before, and then nothing is staged."""
        self._renewed_at = begun_at + _renewed_after_s(begun)
        self._producer_id = 0
        self._counts: dict[str, int] = {}
        self._ids: dict[str, bytes] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._places = Places()
        self._queues: dict[TopicPartition, deque[_Batch]] = {}
        """Batches that wait for a round; the partition that has waited longest is first."""
        self._queued_bytes = 0
        self._under_way = _Round({}, [], [])

    def finish(self) -> tuple[StagedPlace, ...]:
        """Stage the remaining records, wait for all acknowledgements, and return the places.

        Raises:
            TidelogError: As for `stage`.
        """
        while self._queues:
            self._next_round()
        self._end_round()
        return self._places.as_tuple()

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the partition counts of topics, and add the topics to the transaction.

        Raises:
            UnknownTopicError: A topic does not exist.
            TidelogError: No broker answered.
        """
        for topic in topics:
            if topic not in self._counts:
                self._end_round()
                begun = begin(
                    self._cluster,
                    self._name,
                    self._transaction_id,
                    topics=[topic],
                    number=self.number,
                )
                self._require_same(begun)
                (self._ids[topic],) = begun.topic_ids
                staging = STAGING_PREFIX + topic
                known = self._cluster.retry(partial(self._cluster.topic, staging))
                self._counts[topic] = len(known.partitions)
        return self._counts

    def renew(self) -> None:
        """Renew the transaction if half of its time has passed; `stage` does it too.

        A task that works for long without records to stage calls it now and then.

        Raises:
            TransactionGoneError: The transaction has ended.
            TidelogError: Earlier records were rejected, or no broker answered.
        """
        if time.monotonic() < self._renewed_at:
            return
        self._end_round()
        begun_at = time.monotonic()
        begun = begin(self._cluster, self._name, self._transaction_id, number=self.number)
        self._require_same(begun)
        self._renewed_at = begun_at + _renewed_after_s(begun)

    def stage(self, records: Iterable[RowBatch]) -> None:
        """Stage records; on return the last of them may wait or be in flight.

        So Spark produces the next rows while brokers write these records.

        Raises:
            TransactionGoneError: The transaction has ended.
            TidelogError: These or earlier records were rejected, or no broker answered.
        """
        self.renew()
        now_ms = time.time_ns() // 1_000_000
        for part in records:
            at = TopicPartition(part.topic, part.partition)
            batch = self._encoded(at, part, now_ms)
            self._queues.setdefault(at, deque()).append(batch)
            self._queued_bytes += len(batch[0])
        while self._queued_bytes >= _ROUND_BYTES:
            self._next_round()

    def _next_round(self) -> None:
        """Begin a round after the end of the last one."""
        round_bytes, batches = 0, dict[TopicPartition, _Batch]()
        for at, queue in list(self._queues.items()):
            if batches and round_bytes + len(queue[0][0]) > _ROUND_BYTES:
                break
            batches[at] = queue.popleft()
            round_bytes += len(batches[at][0])
            del self._queues[at]
            if queue:
                self._queues[at] = queue  # Behind the other partitions.
        self._queued_bytes -= round_bytes
        self._end_round()
        self._under_way = self._begin_round(batches)

    def _encoded(self, at: TopicPartition, part: RowBatch, now_ms: int) -> _Batch:
        if not self._producer_id:
            granted = self._cluster.call_any(api.INIT_PRODUCER, InitProducerRequest())
            self._producer_id = granted.producer_id
        sequence = self._sequences.get(at, 0)
        count = part.columns.record_count
        self._sequences[at] = sequence + count
        batch = encode_batch(
            part.columns,
            first_timestamp_ms=now_ms,
            codec=self._codec,
            producer_id=self._producer_id,
            base_sequence=sequence,
            format_version=format_for(count, self._cluster.metadata.batch_format),
        )
        return batch, count

    def _end_round(self) -> None:
        """Wait for the acknowledgements of the round; retry batches without one.

        No other request uses these connections before. After a failure, the next call fails too.
        """

        def attempt() -> None:
            under_way = self._under_way
            if under_way.left and not under_way.sent:
                under_way = self._begin_round(under_way.left)
            self._under_way = _Round(under_way.left, [], [])
            failures = self._answered(under_way)
            for error in failures:
                if not isinstance(error, RETRIED_ERRORS):
                    raise error
            for error in failures:
                raise error

        self._cluster.retry(attempt)

    def _begin_round(self, left: dict[TopicPartition, _Batch]) -> "_Round":
        """Send the batch of each partition to its leader."""
        failures: list[TidelogError] = []
        by_connection: dict[BrokerConnection, list[tuple[TopicPartition, bytes]]] = {}
        for at in left:
            try:
                staging = TopicPartition(STAGING_PREFIX + at.topic, at.partition)
                topic_id, connection = self._cluster.leader_of(staging)
                by_connection.setdefault(connection, []).append((at, topic_id))
            except TidelogError as error:
                failures.append(error)
        sent: list[tuple[BrokerConnection, list[TopicPartition]]] = []
        for connection, places in by_connection.items():
            entries = [
                PartitionBatch(topic_id, at.partition, len(left[at][0])) for at, topic_id in places
            ]
            attachment: list[BytesLike] = [left[at][0] for at, _ in places]
            try:
                request = StageRequest(self.number, self._stage_timeout_ms, entries)
                connection.send(api.STAGE, request, attachment)
                sent.append((connection, [at for at, _ in places]))
            except TidelogError as error:
                failures.append(error)
        return _Round(left, sent, failures)

    def _answered(self, under_way: "_Round") -> list[TidelogError]:
        """Remove acknowledged batches, and return the errors of the others."""
        failures = list(under_way.failures)
        for connection, partitions in under_way.sent:
            try:
                reply, _ = connection.receive(api.STAGE, timeout_s=self._stage_timeout_ms / 1000)
                failures += self._settle(reply, partitions, under_way.left)
            except TidelogError as error:
                failures.append(error)
        return failures

    def _settle(
        self,
        reply: ProduceReply,
        partitions: Sequence[TopicPartition],
        left: dict[TopicPartition, _Batch],
    ) -> list[BrokerError]:
        failures: list[BrokerError] = []
        for at, result in zip(partitions, reply.results, strict=True):
            if result.error is not None:
                failures.append(from_wire(result.error))
                continue
            _, count = left.pop(at)
            key = (self._ids[at.topic], at.partition)
            self._places.add(key, self._producer_id, result.base_offset, count=count)
        return failures

    def _require_same(self, begun: BeginTransactionReply) -> None:
        require_same_transaction(
            self._name, self._transaction_id, staged_for=self.number, number=begun.number
        )
