"""Writing what becomes visible together, once, or never.

Shell. A transaction has a name and an id. Tasks stage records for it, wherever they run; one
commit names the tasks that count. Nobody sees anything before that, and after it everybody sees
all of it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, final

import msgspec
import trio

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.config import ProducerConfig
from tidelog.client.producer.producer import Producer
from tidelog.client.producer.producer_record import ProducerRecord
from tidelog.client.producer.receipt import Receipt
from tidelog.client.transactions.staged_places import (
    Places,
    StagedPlace,
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
"""So many times in its timeout a task says that the transaction goes on."""


class TaskResult(msgspec.Struct, frozen=True):
    """What one task has staged; to be given to `commit`. It can be pickled."""

    name: str
    transaction_id: int
    number: int
    """Of the transaction; 0 if the transaction was committed before: nothing was staged then."""
    places: tuple[StagedPlace, ...]

    @property
    def record_count(self) -> int:
        """Records that were staged."""
        return sum(place.record_count for place in self.places)


@final
class Transaction:
    """One transaction of a name: `client.transaction("billing", 17)`. Asks nobody yet."""

    def __init__(
        self, cluster: ClusterClient, name: str, transaction_id: int, *, timeout: float
    ) -> None:
        """Use `client.transaction`."""
        self.name = name
        self.transaction_id = transaction_id
        self._cluster = cluster
        self._timeout = timeout

    @property
    def renewed_after(self) -> float:
        """Seconds after which somebody who stages says that the transaction goes on."""
        return self._timeout / _RENEWED_IN_PARTS

    def task(self, config: ProducerConfig | None = None) -> "TransactionTask":
        """Return a task, which stages records: `async with transaction.task() as task`.

        Args:
            config: How it batches and compresses; acks and idempotence are what they have to be.
        """
        return TransactionTask(self._cluster, self, config or ProducerConfig())

    async def begin(self, topics: Sequence[str] = ()) -> BeginTransactionReply:
        """Begin the transaction, or say that it goes on. Tasks do this by themselves.

        Raises:
            StaleTransactionError: A transaction with a higher id was begun or committed.
            UnknownTopicError: There is no such topic.
            TidelogError: Nobody could be asked, or it was refused.
        """
        request = BeginTransactionRequest(
            self.name, self.transaction_id, list(topics), int(self._timeout * 1000)
        )
        return await self._cluster.call_any(api.BEGIN_TRANSACTION, request, is_repeatable=True)

    async def commit(self, tasks: Iterable[TaskResult]) -> None:
        """Let what these tasks have staged become visible, in their order; the rest is dropped.

        All of it is readable when this returns. If the transaction was committed before, nothing
        happens: it may be called again after any failure, also by another process. If cancelled,
        it may be committed, or not.

        Raises:
            TransactionGoneError: The transaction is not open any more, or the tasks are not of
                one: stage anew. Nothing of it was committed.
            StaleTransactionError: A transaction with a higher id was begun or committed.
            StagedRecordsLostError: It is committed, and somebody accepted the loss of some of it.
            RequestTimedOutError: It may be committed, and not all is known to be readable.
            ConnectionLostError: Nobody knows.
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
                f"transaction {self.transaction_id} of {self.name!r} was begun anew while"
                " tasks staged for it;"
                " stage anew"
            )
        number = numbers.pop() if numbers else (await self.begin()).number
        parts = merged(place for task in staged if task.number for place in task.places)
        patience_ms = int(self._cluster.config.request_timeout * 1000) // 2
        request = CommitTransactionRequest(
            self.name, self.transaction_id, number, parts, patience_ms
        )
        await self._cluster.call_any(api.COMMIT_TRANSACTION, request, is_repeatable=True)

    async def abort(self) -> bool:
        """Drop what was staged, and return `False`; or do nothing, and return `True`: committed.

        Raises:
            TidelogError: Nobody could be asked.
        """
        request = AbortTransactionRequest(self.name, self.transaction_id, 0)
        reply = await self._cluster.call_any(api.ABORT_TRANSACTION, request, is_repeatable=True)
        return reply.is_committed


@final
class TransactionTask:
    """Stages records for a transaction; what it was is in `result` when the block has ended well.

    A task that fails is of no further use: another attempt is another task. What it has staged is
    dropped with the next commit or in time.
    """

    def __init__(
        self, cluster: ClusterClient, transaction: Transaction, config: ProducerConfig
    ) -> None:
        """Use `transaction.task()`."""
        self._cluster = cluster
        self._transaction = transaction
        self._config = replace(config, acks="all", enable_idempotence=True)
        self._producer: Producer | None = None
        self._number: int | None = None
        self._topic_ids: dict[str, bytes] = {}
        self._places = Places()
        self._renewing = trio.CancelScope()
        self._failure: TidelogError | None = None
        self._result: TaskResult | None = None

    @property
    def is_committed(self) -> bool:
        """Whether the transaction was committed before: then nothing is staged."""
        return self._number == 0

    @property
    def result(self) -> TaskResult:
        """What was staged.

        Raises:
            TidelogError: Some of it failed, or the block has not ended.
        """
        if self._failure is not None:
            raise self._failure
        if self._result is None:
            raise ConfigError("the task has not ended: its result is there after the block")
        return self._result

    async def __aenter__(self) -> "TransactionTask":
        """Begin the transaction, or go on with it.

        Raises:
            StaleTransactionError: A transaction with a higher id was begun or committed.
            TidelogError: Nobody could be asked, or it was refused.
        """
        self._number = (await self._transaction.begin()).number
        if self._number:
            self._producer = Producer(self._cluster, self._config, transaction=self._number)
            await self._producer.__aenter__()
            self._cluster.tasks.start_soon(self._renew)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop; all that was sent is acknowledged or has failed by then."""
        self._renewing.cancel()
        if self._producer is not None:
            await self._producer.__aexit__(kind, error, traceback)
        if error is None and self._failure is None:
            assert self._number is not None, "it was entered"
            transaction = self._transaction
            self._result = TaskResult(
                transaction.name, transaction.transaction_id, self._number, self._places.as_tuple()
            )
        elif self._failure is None:
            self._failure = ConfigError("the task was left by an exception: it has no result")

    async def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        partition: int | None = None,
    ) -> None:
        """Stage records, and wait until they are safe; see `Producer.send_many`.

        Raises:
            TransactionGoneError: The transaction is over, or was begun anew; stage anew.
            TidelogError: Some failed; the task is of no further use.
        """
        producer = await self._ready(topic)
        if producer is None:
            return
        try:
            receipts = await producer.send_many(
                STAGING_PREFIX + topic, values, keys=keys, partition=partition
            )
            for receipt in receipts:
                self._note(topic, receipt.partition, receipt.offset, count=len(receipt.indexes))
        except TidelogError as error:
            self._failure = error
            raise

    async def send_records(self, topic: str, records: Sequence[ProducerRecord]) -> None:
        """Stage records of one topic with headers, times and partitions of their own.

        Raises:
            TransactionGoneError: The transaction is over, or was begun anew; stage anew.
            TidelogError: Some failed; the task is of no further use.
        """
        producer = await self._ready(topic)
        if producer is None:
            return
        staging = STAGING_PREFIX + topic
        renamed = [msgspec.structs.replace(record, topic=staging) for record in records]
        try:
            for outcome in await producer.send_records(staging, renamed):
                if not isinstance(outcome, Receipt):
                    raise outcome
                self._note(topic, outcome.partition, outcome.offset, count=1)
        except TidelogError as error:
            self._failure = error
            raise

    async def _ready(self, topic: str) -> Producer | None:
        """Have a topic known; return the producer, `None` if nothing is to be staged any more."""
        if self._failure is not None:
            raise self._failure
        if self._producer is None:
            if self._number is None:
                raise trio.ClosedResourceError("use 'async with transaction.task() as task'")
            return None
        if topic not in self._topic_ids:
            try:
                begun = await self._transaction.begin([topic])
                self._require_same(begun.number)
            except TidelogError as error:
                self._failure = error
                raise
            (self._topic_ids[topic],) = begun.topic_ids
        return self._producer

    def _require_same(self, number: int) -> None:
        require_same_transaction(
            self._transaction.name,
            self._transaction.transaction_id,
            staged_for=self._number,
            number=number,
        )

    def _note(self, topic: str, partition: int, offset: int | None, *, count: int) -> None:
        """Take note of where records are."""
        producer_id = None if self._producer is None else self._producer.producer_id
        if offset is None or producer_id is None:
            raise TransactionGoneError(
                "records were staged, and nobody knows where; the task must be done again"
            )
        self._places.add((self._topic_ids[topic], partition), producer_id, offset, count=count)

    async def _renew(self) -> None:
        """Say now and then that the transaction goes on."""
        with self._renewing:
            while True:
                await trio.sleep(self._transaction.renewed_after)
                try:
                    begun = await self._transaction.begin()
                    self._require_same(begun.number)
                except (BrokerError, ConnectionLostError) as error:
                    if isinstance(error, BrokerError) and not error.is_retriable:
                        self._failure = error
                        return
