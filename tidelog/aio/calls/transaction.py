"""The calls of `tidelog.Transaction`, for asyncio; written by `tools.face_calls`."""

from collections.abc import Iterable, Sequence
from functools import partial

from tidelog.aio.forwarding import Forwarding
from tidelog.client.transactions.transaction import TaskResult
from tidelog.client.transactions.transaction import Transaction as InnerTransaction
from tidelog.wire.messages.transactions import BeginTransactionReply


class TransactionCalls(Forwarding[InnerTransaction]):
    """See `tidelog.Transaction`."""

    __slots__ = ()

    async def begin(self, topics: Sequence[str] = ()) -> BeginTransactionReply:
        """Begin the transaction, or keep it alive. Tasks do this by themselves.

        Raises:
            StaleTransactionError: A transaction with a higher id was begun or committed.
            UnknownTopicError: There is no such topic.
            TidelogError: No broker answered, or the request was refused.
        """
        return await self._guest.call(partial(self._inner.begin, topics))

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
        await self._guest.call(partial(self._inner.commit, list(tasks)))

    async def abort(self) -> bool:
        """Drop the staged records and return `False`; if it is committed already, return `True`.

        Raises:
            TidelogError: No broker answered.
        """
        return await self._guest.call(self._inner.abort)
