"""Putting together what serves queues."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import trio

from broker.flusher import Flusher
from broker.handlers.offsets import OffsetsHandler
from broker.partitions import Partitions
from broker.queues.administration import QueueAdministration
from broker.queues.receiving import ReceiveHandler
from broker.queues.serving import QueueServer
from broker.queues.settling import SettleHandler
from broker.slices import SliceReader
from broker.waiting import Waiting
from coordinator.cluster_node import ClusterNode
from wire import api
from wire.api import Api
from wire.env import Env

SlowHandler = Callable[[Any], Awaitable[object]]


@final
@dataclass(frozen=True, slots=True)
class QueueHandlers:
    """What clients of queues are served with."""

    server: QueueServer
    """Its `run` must run in a task."""
    receive: ReceiveHandler
    settle: SettleHandler
    slow: Mapping[Api[Any, Any], SlowHandler]
    """All other APIs; each request runs in a task."""


@dataclass(frozen=True, slots=True)
class QueueSurroundings:
    """A broker, as far as its queues are concerned."""

    env: Env
    nursery: trio.Nursery
    """For tasks that live as long as the broker."""
    cluster: ClusterNode
    partitions: Partitions
    flusher: Flusher
    waiting: Waiting
    offsets: OffsetsHandler
    receive_bytes_max: int
    """Of records in one reply."""


def queue_handlers(surroundings: QueueSurroundings) -> QueueHandlers:
    """Return what serves the queues of a broker."""
    metadata = surroundings.cluster.metadata
    server = QueueServer(
        surroundings.env,
        surroundings.nursery,
        lambda: metadata.state.catalog,
        surroundings.partitions,
        surroundings.flusher,
        SliceReader(surroundings.env),
    )
    administration = QueueAdministration(server, surroundings.offsets)
    return QueueHandlers(
        server,
        ReceiveHandler(server, surroundings.waiting, bytes_max=surroundings.receive_bytes_max),
        SettleHandler(server, surroundings.waiting, surroundings.nursery),
        {
            api.COUNT_MESSAGES: administration.count,
            api.PURGE: administration.purge,
            api.SEEK_QUEUE: administration.seek,
        },
    )
