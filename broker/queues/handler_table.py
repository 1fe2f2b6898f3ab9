"""Putting together what serves queues."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import trio

from tidelog.broker.handlers.fetch import FetchHandler
from tidelog.broker.handlers.offsets import OffsetsHandler
from tidelog.broker.maintenance.group_commit import Flusher
from tidelog.broker.partitions.replica_manager import Partitions
from tidelog.broker.queues.handlers.admin import QueueAdminHandler
from tidelog.broker.queues.handlers.browse import LookHandler
from tidelog.broker.queues.handlers.deduplication_windows import DeduplicationWindows
from tidelog.broker.queues.handlers.receive import ReceiveHandler
from tidelog.broker.queues.handlers.send import SendHandler
from tidelog.broker.queues.handlers.settle import SettleHandler
from tidelog.broker.queues.partition.journal_retention import Journals
from tidelog.broker.queues.queue_server import QueueServer
from tidelog.broker.queues.retention_warning import RetentionWarning
from tidelog.broker.requests.purgatory import Waiting
from tidelog.broker.requests.response import Replier
from tidelog.coordinator.node import ClusterNode
from tidelog.wire.env.env import Env
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api

ParkingHandler = Callable[[Any, Replier], None]
SlowHandler = Callable[[Any], Awaitable[object]]


@final
@dataclass(frozen=True, slots=True)
class QueueHandlers:
    """What clients of queues are served with."""

    server: QueueServer
    """Its `run` must run in a task."""
    retention_warning: RetentionWarning
    """The same."""
    sends: SendHandler
    parking: Mapping[Api[Any, Any], ParkingHandler]
    """APIs that are answered when there is something to say."""
    slow: Mapping[Api[Any, Any], SlowHandler]
    """All other APIs; each request runs in a task."""


@dataclass(frozen=True, slots=True)
class QueueContext:
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
    """Of records, or of a journal, in one reply."""


def queue_handlers(surroundings: QueueContext) -> QueueHandlers:
    """Return what serves the queues of a broker."""
    nursery, waiting = surroundings.nursery, surroundings.waiting
    bytes_max = surroundings.receive_bytes_max
    server = QueueServer(
        surroundings.env,
        nursery,
        surroundings.cluster,
        partitions=surroundings.partitions,
        flusher=surroundings.flusher,
        offsets=surroundings.offsets,
    )
    windows = DeduplicationWindows(server)
    administration = QueueAdminHandler(server, windows)
    env, journals = surroundings.env, Journals(surroundings.partitions)
    history = FetchHandler(env, journals, waiting, nursery=nursery, fetch_max_bytes=bytes_max)
    return QueueHandlers(
        server,
        RetentionWarning(server),
        SendHandler(server, windows, surroundings.flusher, waiting=waiting),
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
