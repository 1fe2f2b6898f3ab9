"""Putting together what serves transactions."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

from tidelog.broker.metadata_applier import PartitionKeeper
from tidelog.broker.queues.handler_table import QueueContext
from tidelog.broker.transactions.handlers import StageHandler, TransactionHandler
from tidelog.broker.transactions.server import TransactionServer
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api

SlowHandler = Callable[[Any], Awaitable[object]]


@final
@dataclass(frozen=True, slots=True)
class TransactionHandlers:
    """What clients that stage are served with."""

    server: TransactionServer
    """Its `run` must run in a task."""
    stages: StageHandler
    slow: Mapping[Api[Any, Any], SlowHandler]
    """All other APIs; each request runs in a task."""


def transaction_handlers(
    surroundings: QueueContext, keeper: PartitionKeeper, *, max_transaction_bytes_per_partition: int
) -> TransactionHandlers:
    """Return what serves the transactions of a broker."""
    env, cluster, flusher = surroundings.env, surroundings.cluster, surroundings.flusher
    server = TransactionServer(
        env,
        surroundings.nursery,
        cluster,
        partitions=surroundings.partitions,
        flusher=flusher,
        max_transaction_bytes_per_partition=max_transaction_bytes_per_partition,
    )
    transactions = TransactionHandler(env, cluster, keeper)
    return TransactionHandlers(
        server,
        StageHandler(env, server, flusher, waiting=surroundings.waiting),
        {
            api.BEGIN_TRANSACTION: transactions.begin,
            api.COMMIT_TRANSACTION: transactions.commit,
            api.ABORT_TRANSACTION: transactions.abort,
            api.LIST_TRANSACTIONS: transactions.list_all,
        },
    )
