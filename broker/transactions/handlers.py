"""Handlers of transactions: begin, stage, commit, abort, list and forget."""

from collections.abc import Callable
from functools import partial
from typing import Final, final

import trio

from tidelog.broker.handlers.feature_level import require_forgetting
from tidelog.broker.handlers.produce import ProduceHandler
from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.metadata_applier import MetadataApplier
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.requests.purgatory import Purgatory
from tidelog.broker.requests.response import ResponseHandle
from tidelog.broker.requests.steps import Steps
from tidelog.broker.transactions.finished_parts import FinishedParts
from tidelog.broker.transactions.server import TransactionServer
from tidelog.coordinator.metadata.catalog import TOPIC_ID_SIZE
from tidelog.coordinator.metadata.commands import (
    AbortTransaction,
    BeginTransaction,
    CommitTransaction,
    ForgetTransactionNames,
    ForgottenNames,
    TransactionAnswer,
    TransactionCommand,
)
from tidelog.coordinator.metadata.transactions import TransactionName, Transactions
from tidelog.coordinator.node import ClusterNode
from tidelog.wire.batch.record_batch import BatchHeader
from tidelog.wire.env.env import Env
from tidelog.wire.errors import RequestTimedOutError, StagedRecordsLostError
from tidelog.wire.messages.produce import Acks, ProduceRequest
from tidelog.wire.messages.transactions import (
    AbortTransactionReply,
    AbortTransactionRequest,
    BeginTransactionReply,
    BeginTransactionRequest,
    CommitTransactionReply,
    CommitTransactionRequest,
    ForgetTransactionsReply,
    ForgetTransactionsRequest,
    ListTransactionsReply,
    ListTransactionsRequest,
    StageRequest,
    TransactionDescription,
    TransactionStatus,
)

_DECIDE_TIMEOUT_S: Final = 10.0
_WAIT_S_MAX: Final = 600.0
_IS_COMMITTED: Final = frozenset(
    {TransactionStatus.COMMITTED, TransactionStatus.COMPLETE, TransactionStatus.LOST}
)


@final
class StageHandler:
    """Appends staged records."""

    def __init__(
        self,
        env: Env,
        server: TransactionServer,
        group_commit: GroupCommit,
        *,
        purgatory: Purgatory,
        require_format: Callable[[BatchHeader], None],
    ) -> None:
        """Append to the staging logs that `server` finds; see `ProduceHandler`."""
        self._env = env
        self._server = server
        self._group_commit = group_commit
        self._purgatory = purgatory
        self._require_format = require_format

    def handle(
        self, request: StageRequest, attachment: memoryview, response: ResponseHandle
    ) -> Steps | None:
        """Append, and reply when all records are committed to the staging log.

        Raises:
            InvalidRequestError: The request as a whole is malformed; nothing was appended.
        """
        find = partial(self._server.find_open, request.number)
        produce = ProduceHandler(
            self._env,
            _Finder(find),
            self._group_commit,
            purgatory=self._purgatory,
            require_format=self._require_format,
        )
        as_produced = ProduceRequest(int(Acks.ALL), request.timeout_ms, request.batches)
        return produce.handle(as_produced, attachment, response)


@final
class _Finder:
    """Staging logs of one request; see `broker.handlers.produce.Finder`."""

    def __init__(self, find: "partial[Partition]") -> None:
        self._find = find

    def find(self, topic_id: bytes, number: int) -> Partition:
        return self._find(topic_id, number)


@final
class TransactionHandler:
    """Submits commands about transactions to the cluster.

    On cancellation, a command may be carried out or not; a retry tells.
    """

    def __init__(
        self,
        env: Env,
        cluster: ClusterNode,
        applier: MetadataApplier,
        *,
        finished: FinishedParts,
    ) -> None:
        """Submit to `cluster`; `applier` opens staging logs, `finished` knows what is readable."""
        self._env = env
        self._cluster = cluster
        self._applier = applier
        self._finished = finished

    @property
    def _transactions(self) -> Transactions:
        return self._cluster.metadata.state.transactions

    async def begin(self, request: BeginTransactionRequest) -> BeginTransactionReply:
        """Begin a transaction, or continue it.

        Raises:
            StaleTransactionError: A later one is open or committed.
            UnknownTopicError: The topic does not exist.
            OverloadedError: Too many transactions are open.
            InvalidRequestError: A name, an id or a time is not legal.
            RequestTimedOutError: The voters have no majority.
        """
        random = self._env.random
        ids = [random.randbytes(TOPIC_ID_SIZE) for _ in request.topics]
        answer = await self._decide(
            BeginTransaction(
                request.name,
                request.transaction_id,
                request.timeout_ms,
                request.topics,
                ids,
                request.number,
            )
        )
        catalog = self._cluster.metadata.state.catalog
        topic_ids = [catalog.topic(name).topic_id for name in request.topics]
        for topic_id in topic_ids:
            staging = catalog.staging_of(topic_id)
            if staging is not None:
                await self._applier.settle(staging.topic_id)
        return BeginTransactionReply(
            answer.number, int(answer.status), topic_ids, answer.expires_in_ms
        )

    async def commit(self, request: CommitTransactionRequest) -> CommitTransactionReply:
        """Commit a transaction, and wait until all of it is readable.

        Raises:
            TransactionGoneError: The transaction is not open: none of it was or will be committed.
            StaleTransactionError: A later one is open or committed.
            StagedRecordsLostError: The transaction is committed, and some of its records are lost.
            RequestTimedOutError: The outcome is unknown, or not all is readable yet; a retry tells.
            BrokerError: A part cannot be committed; nothing was committed.
        """
        with trio.move_on_after(min(request.timeout_ms / 1000, _WAIT_S_MAX)):
            answer = await self._decide(
                CommitTransaction(
                    request.name,
                    request.transaction_id,
                    request.number,
                    request.parts,
                    request.begins_next,
                    request.is_last,
                    self._finished.take(),
                )
            )
            if await self._wait_readable(request.name, request.transaction_id):
                raise StagedRecordsLostError(
                    f"transaction {request.transaction_id} of {request.name!r} is committed, but"
                    " some of its records were lost before they could be appended"
                )
            return CommitTransactionReply(
                answer.number == 0, answer.next_number, answer.expires_in_ms
            )
        raise RequestTimedOutError(
            f"transaction {request.transaction_id} of {request.name!r} may be committed, and is"
            " not known to be readable as a whole; commit it again to know"
        )

    async def _wait_readable(self, name: str, transaction_id: int) -> bool:
        """Wait until a committed transaction is readable; return whether records are lost."""
        known = self._last(name, transaction_id)
        if known is not None:
            await self._finished.wait_readable(known.last_commit)
            known = self._last(name, transaction_id)
        return known is not None and known.is_lost

    def _last(self, name: str, transaction_id: int) -> TransactionName | None:
        """Return the state of a name, `None` if this transaction is not the last committed one.

        Its successor is committed then, or it was committed long ago.
        """
        known = self._transactions.names.get(name)
        return None if known is None or known.last_transaction_id != transaction_id else known

    async def abort(self, request: AbortTransactionRequest) -> AbortTransactionReply:
        """Abort a transaction, unless it is committed.

        Raises:
            RequestTimedOutError: The voters have no majority.
        """
        answer = await self._decide(
            AbortTransaction(request.name, request.transaction_id, request.number)
        )
        return AbortTransactionReply(answer.status in _IS_COMMITTED)

    async def list_all(self, request: ListTransactionsRequest) -> ListTransactionsReply:
        """Describe transactions by the metadata at the time of the request.

        Raises:
            RequestTimedOutError: The voters have no majority.
        """
        await self._cluster.command_client.catch_up(timeout_s=_DECIDE_TIMEOUT_S)
        names = self._transactions.names
        listed = sorted(names if request.names is None else set(request.names) & set(names))
        return ListTransactionsReply([self._describe(names[name]) for name in listed])

    async def forget(self, request: ForgetTransactionsRequest) -> ForgetTransactionsReply:
        """Delete the state of names that are not in use.

        Raises:
            BrokerNotReadyError: The cluster is new, and has no feature level yet.
            InvalidRequestError: The feature level is too low.
            RequestTimedOutError: The voters have no majority.
        """
        await require_forgetting(self._cluster)
        reply = await self._cluster.command_client.submit(
            ForgetTransactionNames(request.names, request.unused_for_ms),
            timeout_s=_DECIDE_TIMEOUT_S,
        )
        assert isinstance(reply, ForgottenNames)
        return ForgetTransactionsReply(reply.results)

    def _describe(self, entry: TransactionName) -> TransactionDescription:
        opened, has_last = entry.open, entry.last_transaction_id is not None
        if opened is not None and opened.is_unbound:
            opened = None  # No client has begun it.
        return TransactionDescription(
            entry.name,
            None if opened is None else opened.transaction_id,
            None if opened is None else opened.begun_at_ms,
            None if opened is None else opened.deadline_ms,
            entry.last_transaction_id,
            int(self._transactions.status_of_last(entry)) if has_last else None,
            entry.last_used_ms,
        )

    async def _decide(self, command: TransactionCommand) -> TransactionAnswer:
        reply = await self._cluster.command_client.submit(command, timeout_s=_DECIDE_TIMEOUT_S)
        assert isinstance(reply, TransactionAnswer)
        return reply
