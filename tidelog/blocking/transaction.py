"""Writing what becomes visible together, for programs without trio.

Shell: calls run in the client's thread.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import final

from tidelog.blocking.thread import TrioThread
from tidelog.client.client import Client as TrioClient
from tidelog.client.config import ProducerConfig
from tidelog.client.producer.producer_record import ProducerRecord
from tidelog.client.transactions.transaction import TaskResult
from tidelog.client.transactions.transaction import Transaction as TrioTransaction
from tidelog.client.transactions.transaction import TransactionTask as TrioTransactionTask

_Thread = TrioThread[TrioClient]


@final
class Transaction:
    """See `tidelog.Transaction`."""

    def __init__(self, thread: _Thread, transaction: TrioTransaction) -> None:
        """Use `client.transaction(...)`."""
        self._thread = thread
        self._transaction = transaction

    def task(self, config: ProducerConfig | None = None) -> "TransactionTask":
        """Return a task, to be used by `with`; see `tidelog.Transaction.task`."""
        return TransactionTask(self._thread, self._transaction.task(config))

    def commit(self, tasks: Iterable[TaskResult]) -> None:
        """Let what these tasks have staged become visible; see `tidelog.Transaction.commit`."""
        self._thread.call(partial(self._transaction.commit, tasks))

    def abort(self) -> bool:
        """Drop what was staged, unless it is committed; see `tidelog.Transaction.abort`."""
        return self._thread.call(self._transaction.abort)


@final
class TransactionTask:
    """See `tidelog.TransactionTask`."""

    def __init__(self, thread: _Thread, task: TrioTransactionTask) -> None:
        """Use `transaction.task()`."""
        self._thread = thread
        self._task = task

    def __enter__(self) -> "TransactionTask":
        """Begin the transaction, or go on with it; see `tidelog.TransactionTask`."""
        self._thread.call(self._task.__aenter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop."""
        self._thread.call(partial(self._task.__aexit__, kind, error, traceback))

    @property
    def is_committed(self) -> bool:
        """Whether the transaction was committed before: nothing more is staged."""
        return self._task.is_committed

    @property
    def result(self) -> TaskResult:
        """What was staged, after the block; see `tidelog.TransactionTask.result`."""
        return self._task.result

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        partition: int | None = None,
    ) -> None:
        """Stage records and wait until they are safe; see `tidelog.TransactionTask.send_many`."""
        self._thread.call(
            partial(self._task.send_many, topic, values, keys=keys, partition=partition)
        )

    def send_records(self, topic: str, records: Sequence[ProducerRecord]) -> None:
        """Stage records with headers and times; see `tidelog.TransactionTask.send_records`."""
        self._thread.call(partial(self._task.send_records, topic, records))
