"""Putting together what serves staged writes."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

from tidelog.broker.metadata_applier import PartitionKeeper
from tidelog.broker.queues.handler_table import QueueContext
from tidelog.broker.staging.server import StagingServer
from tidelog.broker.staging.transactions import StageHandler, TransactionsHandler
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api

SlowHandler = Callable[[Any], Awaitable[object]]


@final
@dataclass(frozen=True, slots=True)
class StagingHandlers:
    """What clients that stage are served with."""

    server: StagingServer
    """Its `run` must run in a task."""
    stages: StageHandler
    slow: Mapping[Api[Any, Any], SlowHandler]
    """All other APIs; each request runs in a task."""


def staging_handlers(
    surroundings: QueueContext, keeper: PartitionKeeper, *, max_transaction_bytes_per_partition: int
) -> StagingHandlers:
    """Return what serves the staged writes of a broker."""
    env, cluster, flusher = surroundings.env, surroundings.cluster, surroundings.flusher
    server = StagingServer(
        env,
        surroundings.nursery,
        cluster,
        partitions=surroundings.partitions,
        flusher=flusher,
        max_transaction_bytes_per_partition=max_transaction_bytes_per_partition,
    )
    transactions = TransactionsHandler(env, cluster, keeper)
    return StagingHandlers(
        server,
        StageHandler(env, server, flusher, waiting=surroundings.waiting),
        {
            api.BEGIN_TRANSACTION: transactions.begin,
            api.COMMIT_TRANSACTION: transactions.commit,
            api.ABORT_TRANSACTION: transactions.abort,
            api.LIST_TRANSACTIONS: transactions.list_all,
        },
    )
