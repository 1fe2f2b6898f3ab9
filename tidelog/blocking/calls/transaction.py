"""The calls of `tidelog.Transaction`, which wait; written by `tools.blocking_calls`."""

from collections.abc import Iterable, Sequence
from functools import partial

from tidelog.blocking.forwarding import Forwarding
from tidelog.client.transactions.transaction import TaskResult
from tidelog.client.transactions.transaction import Transaction as AsyncTransaction
from tidelog.wire.messages.transactions import BeginTransactionReply


class TransactionCalls(Forwarding[AsyncTransaction]):
    """See `tidelog.Transaction`."""

    __slots__ = ()

    def begin(self, topics: Sequence[str] = ()) -> BeginTransactionReply:
        """Begin the transaction, or say that it goes on. Tasks do this by themselves.

        Raises:
            StaleTransactionError: A transaction with a higher id was begun or committed.
            UnknownTopicError: There is no such topic.
            TidelogError: Nobody could be asked, or it was refused.
        """
        return self._thread.call(partial(self._inner.begin, topics))

    def commit(self, tasks: Iterable[TaskResult]) -> None:
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
        self._thread.call(partial(self._inner.commit, list(tasks)))

    def abort(self) -> bool:
        """Drop what was staged, and return `False`; or do nothing, and return `True`: committed.

        Raises:
            TidelogError: Nobody could be asked.
        """
        return self._thread.call(self._inner.abort)
