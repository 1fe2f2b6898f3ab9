"""Transactions for asyncio."""

from types import TracebackType
from typing import Self, final

from tidelog.aio.calls.transaction import TransactionCalls
from tidelog.aio.calls.transaction_task import TransactionTaskCalls
from tidelog.client.config import ProducerConfig


@final
class Transaction(TransactionCalls):
    """See `tidelog.Transaction`."""

    __slots__ = ()

    def task(self, config: ProducerConfig | None = None) -> "TransactionTask":
        """Return a task; use it with `async with`; see `tidelog.Transaction.task`."""
        return TransactionTask(self._guest, self._inner.task(config))


@final
class TransactionTask(TransactionTaskCalls):
    """See `tidelog.TransactionTask`."""

    __slots__ = ()

    async def __aenter__(self) -> Self:
        """Begin or continue the transaction; see `tidelog.TransactionTask`."""
        await self._guest.enter(self._inner)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the task; see `tidelog.TransactionTask`."""
        await self._guest.leave(self._inner, error)
