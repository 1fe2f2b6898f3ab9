"""Transactions of the blocking client."""

from functools import partial
from types import TracebackType
from typing import Self, final

from tidelog.blocking.calls.transaction import TransactionCalls
from tidelog.blocking.calls.transaction_task import TransactionTaskCalls
from tidelog.client.config import ProducerConfig


@final
class Transaction(TransactionCalls):
    """See `tidelog.Transaction`."""

    def task(self, config: ProducerConfig | None = None) -> "TransactionTask":
        """Return a task; use it with `with`; see `tidelog.Transaction.task`."""
        return TransactionTask(self._thread, self._inner.task(config))


@final
class TransactionTask(TransactionTaskCalls):
    """See `tidelog.TransactionTask`."""

    def __enter__(self) -> Self:
        """Begin or continue the transaction; see `tidelog.TransactionTask`."""
        self._thread.call(self._inner.__aenter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the task; see `tidelog.TransactionTask`."""
        self._thread.call(partial(self._inner.__aexit__, kind, error, traceback))
