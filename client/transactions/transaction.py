"""Transactions: records that become visible together, exactly once, or never.

Shell. A transaction has a name and an id. Tasks stage records for it, on any machines; one commit
names the tasks that count. Before it, consumers see none of the records; after it, all of them.
"""

from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Final, NamedTuple, final

import msgspec
import trio

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.config import ProducerConfig
from tidelog.client.errors import BufferFullError, ClosedError
from tidelog.client.producer.producer import Producer
from tidelog.client.producer.producer_record import ProducerRecord, checked_record
from tidelog.client.producer.receipt import Receipt
from tidelog.client.transactions.name_session import (
    BegunTransaction,
    NameSession,
    StagedTopic,
)
from tidelog.client.transactions.staged_places import (
    Places,
    StagedPlace,
    columns_of,
    grouped_by_topic,
    merged,
    require_same_transaction,
)
from tidelog.wire.errors import (
    BrokerError,
    ConfigError,
    ConnectionLostError,
    TidelogError,
    TransactionGoneError,
)
from tidelog.wire.messages.transactions import (
    STAGING_PREFIX,
    AbortTransactionRequest,
    BeginTransactionReply,
    BeginTransactionRequest,
    CommitTransactionRequest,
)
from tidelog.wire.protocol import api

_RENEWED_IN_PARTS: Final = 4
"""Number of keep-alives of a task within the timeout of its transaction."""
_PLACES_UNKNOWN: Final = "the places of staged records are unknown; the task must be done again"


class PlacedRecords(NamedTuple):
    """Consecutive records in a staging log."""

    partition: int
    offset: int | None
    record_count: int


class TaskResult(msgspec.Struct, frozen=True):
    """Records that one task has staged, for `Transaction.commit`. It can be pickled."""

    name: str
    transaction_id: int
    number: int
    """Number of the transaction; 0 if it was committed before: then nothing was staged."""
    places: tuple[StagedPlace, ...]

    @property
    def record_count(self) -> int:
        """Number of staged records."""
        return sum(place.record_count for place in self.places)


@final
class Transaction:
    """Transaction of a name: `client.transaction("billing", 17)`. Sends no request yet."""

    def __init__(
        self,
        cluster: ClusterClient,
        name: str,
        transaction_id: int,
        *,
        timeout: float,
        session: NameSession,
    ) -> None:
        """Use `client.transaction`."""
        self.name = name
        self.transaction_id = transaction_id
        self.session = session
        """What the client keeps of the name."""
        self._cluster = cluster
        self._timeout = timeout

    @property
    def renewed_after(self) -> float:
        """Seconds between keep-alives of the transaction by its tasks."""
        return self._timeout / _RENEWED_IN_PARTS

    def task(self, config: ProducerConfig | None = None) -> "TransactionTask":
        """Return a task, which stages records: `async with transaction.task() as task`.

        Args:
            config: Batching and compression of the task; acks and idempotence are fixed.
        """
        return TransactionTask(self._cluster, self, config or ProducerConfig())

    async def begin(self, topics: Sequence[str] = ()) -> BeginTransactionReply:
        """Begin the transaction, or keep it alive. Tasks do this by themselves.

        Raises:
            StaleTransactionError: A transaction with a higher id was begun or committed.
            UnknownTopicError: There is no such topic.
            TidelogError: No broker answered, or the request was refused.
        """
        return await self.renew(topics, number=0)

    async def renew(self, topics: Sequence[str] = (), *, number: int) -> BeginTransactionReply:
        """Keep the transaction alive that is open under `number`; for the rest see `begin`."""
        request = BeginTransactionRequest(
            self.name, self.transaction_id, list(topics), int(self._timeout * 1000), number
        )
        return await self._cluster.call_any(api.BEGIN_TRANSACTION, request, is_repeatable=True)

    async def open(self) -> BegunTransaction:
        """Return the transaction as the last commit of this client has begun it, or begin it.

        Its number is 0 if it is committed already. For errors see `begin`.
        """
        now = trio.current_time()
        begun = self.session.begun(self.transaction_id, now)
        if begun is not None:
            return begun
        reply = await self.begin()
        expires_in = reply.expires_in_ms / 1000
        renewed_after = expires_in / 2 if expires_in else self.renewed_after
        return BegunTransaction(reply.number, now + renewed_after)

    async def commit(self, tasks: Iterable[TaskResult]) -> None:
        """Commit the records that these tasks have staged, in their order; drop the rest.

        All records are readable when this returns. If the transaction was committed before, nothing
        happens: it may be called again after any failure, also by another process. If cancelled,
        the transaction may or may not be committed.

        Raises:
            TransactionGoneError: The transaction is not open any more, or the tasks are from
                different attempts: stage the records again. Nothing was committed.
            StaleTransactionError: A transaction with a higher id was begun or committed.
            StagedRecordsLostError: It is committed, and an operator accepted the loss of some of
                its records.
            RequestTimedOutError: It may be committed, and not all records are known to be readable.
            ConnectionLostError: It may or may not be committed.
        """
        staged = list(tasks)
        if any(
            (task.name, task.transaction_id) != (self.name, self.transaction_id) for task in staged
        ):
            raise ConfigError(
                f"a task is not of transaction {self.transaction_id} of {self.name!r}"
            )
        numbers = {task.number for task in staged} - {0}
        if len(numbers) > 1:
            raise TransactionGoneError(
                f"transaction {self.transaction_id} of {self.name!r} was begun again while"
                " tasks staged for it;"
                " stage its records again"
            )
        number = numbers.pop() if numbers else (await self.begin()).number
        parts = merged(place for task in staged if task.number for place in task.places)
        patience_ms = int(self._cluster.config.request_timeout * 1000) // 2
        request = CommitTransactionRequest(
            self.name, self.transaction_id, number, parts, patience_ms, begins_next=True
        )
        sent_at = trio.current_time()
        try:
            reply = await self._cluster.call_any(
                api.COMMIT_TRANSACTION, request, is_repeatable=True
            )
        except BaseException:
            self.session.forget()
            raise
        renewed_at = sent_at + reply.next_expires_in_ms / 1000 / 2
        self.session.committed(self.transaction_id, reply.next_number, renewed_at=renewed_at)

    async def abort(self) -> bool:
        """Drop the staged records and return `False`; if it is committed already, return `True`.

        Raises:
            TidelogError: No broker answered.
        """
        self.session.forget()
        request = AbortTransactionRequest(self.name, self.transaction_id, 0)
        reply = await self._cluster.call_any(api.ABORT_TRANSACTION, request, is_repeatable=True)
        return reply.is_committed


@final
class TransactionTask:
    """Stages records for a transaction; `result` lists them when the block has ended normally.

    Records of one partition are in the order of the calls. A task that fails, or one of whose calls
    is cancelled, is of no further use: another attempt is another task. Its staged records are
    dropped with the next commit or after the timeout.
    """

    def __init__(
        self, cluster: ClusterClient, transaction: Transaction, config: ProducerConfig
    ) -> None:
        """Use `transaction.task()`."""
        self._cluster = cluster
        self._transaction = transaction
        self._config = replace(config, acks="all", enable_idempotence=True)
        self._producer: Producer | None = None
        self._begun: BegunTransaction | None = None
        self._topics: dict[str, StagedTopic] = {}
        """Topics that this task has staged for."""
        self._places = Places()
        self._pending: list[ProducerRecord] = []
        """Records of `send_nowait` that no request has."""
        self._pending_bytes = 0
        self._turn = trio.Lock()
        self._renewing = trio.CancelScope()
        self._failure: TidelogError | None = None
        self._result: TaskResult | None = None

    @property
    def is_committed(self) -> bool:
        """Whether the transaction was committed before: then nothing is staged."""
        return self._begun is not None and not self._begun.number

    @property
    def previous_id(self) -> int | None:
        """Id of the transaction after which this one must be committed, if that is known."""
        return None if self._begun is None else self._begun.previous_id

    @property
    def result(self) -> TaskResult:
        """Staged records of the task.

        Raises:
            TidelogError: A record failed, or the block has not ended.
        """
        if self._failure is not None:
            raise self._failure
        if self._result is None:
            raise ConfigError("the task has not ended: its result is there after the block")
        return self._result

    async def __aenter__(self) -> "TransactionTask":
        """Begin the transaction, or join it.

        Raises:
            StaleTransactionError: A transaction with a higher id was begun or committed.
            TidelogError: No broker answered, or the request was refused.
        """
        await self._open(await self._transaction.open())
        if self._producer is not None:
            self._cluster.tasks.start_soon(self._renew)
        return self

    async def _open(self, begun: BegunTransaction) -> None:
        """Stage for a transaction from now on, unless it is committed already."""
        self._begun, self._producer = begun, None
        if begun.number:
            kept = self._transaction.session.take_producer(self._config, begun.number)
            if kept is not None:
                kept.stage_for(begun.number)
                self._producer = kept
            else:
                producer = Producer(self._cluster, self._config, transaction=begun.number)
                self._producer = await producer.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stage the records of `send_nowait`, and stop.

        A failure of records is not raised here, but by `result`.
        """
        try:
            if error is None and self._failure is None:
                with suppress(TidelogError):
                    await self.flush()
        finally:
            self._renewing.cancel()
            await self._release(kind, error, traceback)
        if error is None and self._failure is None:
            assert self._begun is not None, "it was entered"
            transaction = self._transaction
            self._result = TaskResult(
                transaction.name,
                transaction.transaction_id,
                self._begun.number,
                self._places.as_tuple(),
            )
        elif self._failure is None:
            self._failure = ConfigError("the task was left by an exception: it has no result")

    async def _release(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Keep the producer for the next transaction, or close it after a failure."""
        producer, begun, session = self._producer, self._begun, self._transaction.session
        if error is not None or self._failure is not None:
            session.forget()
        if producer is None or begun is None:
            return
        if error is None and self._failure is None:
            session.keep_producer(self._config, producer, begun.number)
        else:
            await producer.__aexit__(kind, error, traceback)

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes]] = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Stage one record, and wait until it is durable; it is not visible before the commit.

        Raises:
            TransactionGoneError: The transaction is over, or was begun again; stage its records
                again.
            TypeError: A part of the record has a wrong type.
            TidelogError: The record failed; the task is of no further use. See `Producer.send`.
        """
        record = checked_record(
            topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )
        await self.send_records(topic, [record])

    def send_nowait(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes]] = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Take one record, to be staged by `flush`, by the next call that waits, or at the end.

        Raises:
            BufferFullError: `buffer_memory` is full; `flush` and call again.
            ClosedError: The block has not begun, or has ended.
            TypeError: A part of the record has a wrong type.
            TidelogError: Earlier records failed; the task is of no further use.
        """
        if self._failure is not None:
            raise self._failure
        if self._begun is None or self._result is not None:
            raise ClosedError("use 'async with transaction.task() as task'")
        record = checked_record(
            topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )
        if self._producer is not None:
            record = self._producer.with_context(record)
        if self._pending_bytes + record.size > self._config.buffer_memory:
            raise BufferFullError(
                f"no room for a record of {record.size} bytes: buffer_memory="
                f"{self._config.buffer_memory} is full; call flush, and send again"
            )
        self._pending.append(record)
        self._pending_bytes += record.size

    async def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        partition: int | None = None,
    ) -> None:
        """Stage records, and wait until they are durable; see `Producer.send_many`.

        Raises:
            TransactionGoneError: The transaction is over, or was begun again; stage its records
                again.
            TidelogError: Some records failed; the task is of no further use.
        """
        await self.flush()
        with self._staging():
            await self._stage_columns(topic, values, keys, partition=partition)

    async def send_records(self, topic: str, records: Sequence[ProducerRecord]) -> None:
        """Stage records of one topic with their own headers, times and partitions.

        Raises:
            TransactionGoneError: The transaction is over, or was begun again; stage its records
                again.
            TidelogError: Some records failed; the task is of no further use.
        """
        await self.flush()
        with self._staging():
            await self._stage(topic, records)

    async def send_batch(self, records: Sequence[ProducerRecord]) -> None:
        """Stage records of any topics, in their order in each partition; see `send_records`."""
        await self.flush()
        with self._staging():
            for topic, some in grouped_by_topic(records).items():
                await self._stage(topic, some)

    async def flush(self) -> None:
        """Wait until the records of `send_nowait` are durable.

        Raises:
            TransactionGoneError: The transaction is over, or was begun again; stage its records
                again.
            TidelogError: Some records failed; the task is of no further use.
        """
        async with self._turn:
            records, self._pending = self._pending, []
            with self._staging():
                for topic, some in grouped_by_topic(records).items():
                    await self._stage(topic, some)
            self._pending_bytes -= sum(record.size for record in records)

    @contextmanager
    def _staging(self) -> Generator[None, None, None]:
        """Keep the failure of the block, after which some places may be unknown."""
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except (TidelogError, trio.Cancelled) as error:
            self._failure = (
                error
                if isinstance(error, TidelogError)
                else TransactionGoneError("a send was cancelled; do the task again")
            )
            raise

    async def _stage(self, topic: str, records: Sequence[ProducerRecord]) -> None:
        columns = columns_of(records)
        if columns is not None:
            await self._stage_columns(topic, *columns, partition=None)
            return
        staging = STAGING_PREFIX + topic
        renamed = [msgspec.structs.replace(record, topic=staging) for record in records]

        async def stage(producer: Producer) -> list[PlacedRecords]:
            outcomes = await producer.send_records(staging, renamed)
            placed: list[PlacedRecords] = []
            for outcome in outcomes:
                if not isinstance(outcome, Receipt):
                    raise outcome
                placed.append(PlacedRecords(outcome.partition, outcome.offset, 1))
            return placed

        await self._stage_by(stage, topic)

    async def _stage_columns(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        *,
        partition: int | None,
    ) -> None:
        async def stage(producer: Producer) -> list[PlacedRecords]:
            receipts = await producer.send_many(
                STAGING_PREFIX + topic, values, keys=keys, partition=partition
            )
            return [
                PlacedRecords(each.partition, each.offset, len(each.indexes)) for each in receipts
            ]

        await self._stage_by(stage, topic)

    async def _stage_by(
        self, stage: Callable[[Producer], Awaitable[list[PlacedRecords]]], topic: str
    ) -> None:
        """Stage records, and note their places.

        A transaction that a commit has begun may be over before its first records: then another one
        is begun for them.
        """
        try:
            await self._stage_once(stage, topic)
        except TransactionGoneError:
            begun = self._begun
            if begun is None or begun.previous_id is None or self._places.as_tuple():
                raise
            self._transaction.session.forget()
            abandoned = self._producer
            self._topics = {}
            await self._open(await self._transaction.open())
            if abandoned is not None:
                await abandoned.__aexit__(None, None, None)
            await self._stage_once(stage, topic)

    async def _stage_once(
        self, stage: Callable[[Producer], Awaitable[list[PlacedRecords]]], topic: str
    ) -> None:
        producer = await self._ready(topic)
        if producer is None:
            return
        placed = await stage(producer)
        known = self._topics[topic]
        if producer.producer_id is None or self._staging_id(topic) != known.staging_id:
            raise TransactionGoneError(_PLACES_UNKNOWN)
        for partition, offset, count in placed:
            if offset is None:
                raise TransactionGoneError(_PLACES_UNKNOWN)
            key = (known.topic_id, partition)
            self._places.add(key, producer.producer_id, offset, count=count)

    def _staging_id(self, topic: str) -> bytes | None:
        known = self._cluster.metadata.topic(STAGING_PREFIX + topic)
        return None if known is None else known.topic_id

    async def _ready(self, topic: str) -> Producer | None:
        """Announce a topic; return the producer, `None` if nothing is to be staged any more."""
        if self._producer is None:
            if self._begun is None:
                raise ClosedError("use 'async with transaction.task() as task'")
            return None
        if topic not in self._topics:
            session = self._transaction.session
            known = session.topics.get(topic)
            if known is None or known.staging_id != self._staging_id(topic):
                begun = await self._transaction.renew([topic], number=self._number)
                self._require_same(begun.number)
                staging = await self._cluster.topic(STAGING_PREFIX + topic)
                known = session.topics[topic] = StagedTopic(begun.topic_ids[0], staging.topic_id)
            self._topics[topic] = known
        return self._producer

    @property
    def _number(self) -> int:
        return 0 if self._begun is None else self._begun.number

    def _require_same(self, number: int) -> None:
        require_same_transaction(
            self._transaction.name,
            self._transaction.transaction_id,
            staged_for=self._number,
            number=number,
        )

    async def _renew(self) -> None:
        """Keep the transaction alive at intervals."""
        with self._renewing:
            assert self._begun is not None, "it was begun"
            await trio.sleep_until(self._begun.renewed_at)
            while True:
                renewed_after = self._transaction.renewed_after
                try:
                    begun = await self._transaction.renew(number=self._number)
                    self._require_same(begun.number)
                    if begun.expires_in_ms:
                        renewed_after = begun.expires_in_ms / 2000
                except (BrokerError, ConnectionLostError) as error:
                    if isinstance(error, BrokerError) and not error.is_retriable:
                        self._failure = error
                        return
                await trio.sleep(renewed_after)
