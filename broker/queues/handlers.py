"""Putting together what serves queues."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import trio

from broker.flusher import Flusher
from broker.handlers.fetch import FetchHandler
from broker.handlers.offsets import OffsetsHandler
from broker.partitions import Partitions
from broker.queues.administration import QueueAdministration
from broker.queues.history import Journals
from broker.queues.looking import LookHandler
from broker.queues.loss_watch import LossWatch
from broker.queues.losses import Losses
from broker.queues.receiving import ReceiveHandler
from broker.queues.sending import SendHandler
from broker.queues.sent_windows import SentWindows
from broker.queues.serving import QueueServer
from broker.queues.settling import SettleHandler
from broker.replier import Replier
from broker.retention import Retention
from broker.waiting import Waiting
from coordinator.cluster_node import ClusterNode
from wire import api
from wire.api import Api
from wire.env import Env

ParkingHandler = Callable[[Any, Replier], None]
SlowHandler = Callable[[Any], Awaitable[object]]


@final
@dataclass(frozen=True, slots=True)
class QueueHandlers:
    """What clients of queues are served with."""

    server: QueueServer
    """Its `run` must run in a task."""
    loss_watch: LossWatch
    """The same."""
    sends: SendHandler
    parking: Mapping[Api[Any, Any], ParkingHandler]
    """APIs that are answered when there is something to say."""
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
    retention: Retention
    receive_bytes_max: int
    """Of records, or of a journal, in one reply."""


def queue_handlers(surroundings: QueueSurroundings) -> QueueHandlers:
    """Return what serves the queues of a broker."""
    nursery, waiting = surroundings.nursery, surroundings.waiting
    bytes_max = surroundings.receive_bytes_max
    server = QueueServer(
        surroundings.env,
        nursery,
        surroundings.cluster,
        surroundings.partitions,
        surroundings.flusher,
        surroundings.offsets,
    )
    windows = SentWindows(server)
    losses = Losses(surroundings.env, surroundings.retention, surroundings.offsets)
    administration = QueueAdministration(server, losses, windows)
    env, journals = surroundings.env, Journals(surroundings.partitions)
    history = FetchHandler(env, journals, waiting, nursery, fetch_bytes_max=bytes_max)
    return QueueHandlers(
        server,
        LossWatch(server, surroundings.cluster.metadata, losses),
        SendHandler(server, windows, surroundings.flusher, waiting),
        {
            api.RECEIVE: ReceiveHandler(server, waiting, bytes_max=bytes_max).handle,
            api.SETTLE: SettleHandler(server, waiting, nursery).handle,
            api.LOOK: LookHandler(server, nursery, bytes_max=bytes_max).handle,
            api.FETCH_HISTORY: history.handle,
        },
        {
            api.COUNT_MESSAGES: administration.count,
            api.PURGE: administration.purge,
            api.SEEK_QUEUE: administration.seek,
            api.REDRIVE: administration.redrive,
            api.LAST_PURGE: administration.last_purge,
            api.CANCEL: administration.cancel,
            api.DESCRIBE_REDRIVE: administration.describe_redrive,
            api.LIST_HISTORY_OFFSETS: OffsetsHandler(env, journals).list_offsets,
        },
    )
