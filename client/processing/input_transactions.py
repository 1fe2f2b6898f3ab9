"""Transactions with the output of one input partition, each of which builds on the one before.

Shell. A commit succeeds only if the transaction that it builds on is still the last one: a
compare-and-set, made of commands that every cluster knows.

1. `begin(next offset)` opens the transaction. A name has one open transaction at a time, and a
   commit must name its number. So a commit with this number means that no other transaction of the
   name was committed since.
2. `begin(previous id)` reports "committed already" if and only if that is the last transaction. The
   cluster decides this after step 1, so it holds until the commit.

Both are done already if the commit of the previous transaction has begun this one, in one record.

So two owners of a partition, of which one has not heard of the other, cannot commit output of the
same input: `docs/decisions/0035-process.md`.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, final

import trio

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.config import ProducerConfig
from tidelog.client.processing.input_progress import UNPLACED, PlannedTransaction
from tidelog.client.producer.producer_record import ProducerRecord
from tidelog.client.transactions.name_session import NameSession
from tidelog.client.transactions.transaction import TaskResult, Transaction
from tidelog.wire.errors import StaleTransactionError, TidelogError, TransactionGoneError
from tidelog.wire.messages.transactions import ListTransactionsRequest
from tidelog.wire.protocol import api

NAME_LENGTH_MAX: Final = 150
"""Characters of a processor's name: those of a transaction also have a topic and a partition."""
_ABORT_S: Final = 1.0
"""Seconds for which a cancelled commit tries to abort."""
OVERTAKEN: Final = (StaleTransactionError, TransactionGoneError)
"""Errors of a transaction whose place was taken by another one, or that has expired."""


def transaction_name(processor: str, topic_id: bytes, partition: int) -> str:
    """Return the name of the transactions of one input partition.

    A topic that is recreated has another id, so it starts without a position.
    """
    return f"{processor}:{topic_id.hex()}:{partition}"


@final
class InputTransactions:
    """Transactions of one input partition."""

    def __init__(
        self, cluster: ClusterClient, name: str, *, timeout: float, config: ProducerConfig
    ) -> None:
        """Use this name; stage as `config` says."""
        self._cluster = cluster
        self._name = name
        self._timeout = timeout
        self._config = config
        self._session = NameSession(cluster)

    async def take_over(self) -> int:
        """Abort the transaction of an earlier owner; return the id of the last committed one.

        A name without one is claimed by an empty transaction, on which the first one builds.

        Raises:
            StaleTransactionError: Another owner was faster; call again.
            TransactionGoneError: The same.
            TidelogError: No broker answered, or the request was refused.
        """
        request = ListTransactionsRequest([self._name])
        reply = await self._cluster.call_any(api.LIST_TRANSACTIONS, request, is_repeatable=True)
        for found in reply.transactions:
            if found.open_transaction_id is not None:
                await self._transaction(found.open_transaction_id).abort()
            if found.last_transaction_id is not None:
                return found.last_transaction_id
        await self._transaction(UNPLACED).commit([])
        return UNPLACED

    async def commit(self, planned: PlannedTransaction) -> bool:
        """Stage the output of some input, and make it visible, once; return `True`.

        If another owner has committed up to the same place, nothing is staged, and `False` is
        returned. If cancelled, the transaction is aborted, unless it is committed already.

        Raises:
            StaleTransactionError: Another owner has taken over; nothing was committed.
            TransactionGoneError: The same.
            StagedRecordsLostError: It is committed, and an operator accepted the loss of some of
                its records.
            TidelogError: It may or may not be committed; `take_over` tells.
        """
        transaction = self._transaction(planned.transaction_id)
        try:
            result = await self._stage(transaction, planned.previous_id, planned.outputs)
            await transaction.commit([result])
        except trio.Cancelled:
            with trio.move_on_after(_ABORT_S, shield=True), suppress(TidelogError):
                await transaction.abort()
            raise
        return result.number != 0

    async def move(self, last_id: int, new_id: int) -> None:
        """Commit a transaction without records; for errors see `commit`."""
        await self.commit(PlannedTransaction(last_id, new_id, 0, (), 0, 0))

    async def keep(self, previous_id: int) -> None:
        """Use the name, so that the cluster does not forget it.

        Raises:
            StaleTransactionError: Another owner has taken over.
            TransactionGoneError: The same.
            TidelogError: No broker answered.
        """
        transaction = self._transaction(previous_id + 1)
        await transaction.begin()
        await self._require_last(previous_id)
        await transaction.abort()

    def close(self) -> None:
        """Close the producers that were kept for the next transactions."""
        self._session.forget()

    def _transaction(self, transaction_id: int) -> Transaction:
        return Transaction(
            self._cluster,
            self._name,
            transaction_id,
            timeout=self._timeout,
            session=self._session,
        )

    async def _stage(
        self, transaction: Transaction, previous_id: int, outputs: Sequence[ProducerRecord]
    ) -> TaskResult:
        async with transaction.task(self._config) as task:
            await task.send_batch(outputs)
            if not task.is_committed and task.previous_id != previous_id:
                await self._require_last(previous_id)
        return task.result

    async def _require_last(self, previous_id: int) -> None:
        """Check that no transaction was committed after `previous_id`, now that one is open."""
        previous = self._transaction(previous_id)
        if (await previous.begin()).number:
            await previous.abort()
            raise TransactionGoneError(
                f"transaction {previous_id} of {self._name!r} is not the last committed one"
            )
