"""Which handler answers which API of clients.

Shell: builds the handlers of one broker and hands them to its dispatcher.
"""

from collections.abc import Mapping
from typing import Any

from broker.config import BrokerConfig
from broker.dispatch import ClientHandlers, Dispatcher, SlowHandler
from broker.handlers.broker_config import BrokerConfigHandler
from broker.handlers.cluster import ClusterHandler
from broker.handlers.fetch import FetchHandler
from broker.handlers.groups import CommitHandler
from broker.handlers.moves import MovesHandler
from broker.handlers.offsets import OffsetsHandler
from broker.handlers.produce import ProduceHandler
from broker.handlers.producers import ProducersHandler
from broker.handlers.queue_admin import QueueAdminHandler
from broker.handlers.reassignment import ReassignmentHandler
from broker.handlers.session import SessionHandler
from broker.handlers.topic_extents import TopicExtentsHandler
from broker.handlers.topic_usage import TopicUsageHandler
from broker.handlers.topics import TopicsHandler
from broker.live_config import LiveConfig
from broker.log_extents import LogExtents
from broker.partition_keeper import PartitionKeeper
from broker.queues.handlers import QueueSurroundings, queue_handlers
from broker.replication.surroundings import Surroundings
from broker.retention import Retention
from broker.staging.handlers import staging_handlers
from broker.waiting import Waiting
from coordinator.cluster_node import ClusterNode
from coordinator.group_coordinator import GroupCoordinator
from wire import api
from wire.api import Api

_Slow = Mapping[Api[Any, Any], SlowHandler]


def serve_clients(
    surroundings: Surroundings,
    live_config: LiveConfig,
    keeper: PartitionKeeper,
    *,
    retention: Retention,
    waiting: Waiting,
    dispatcher: Dispatcher,
) -> None:
    """Begin to serve clients, and the other brokers that ask on their behalf."""
    config = live_config.own
    env, nursery, cluster = surroundings.env, surroundings.nursery, surroundings.cluster
    partitions, flusher = surroundings.partitions, surroundings.flusher
    session = SessionHandler(config, cluster, partitions)
    offsets = OffsetsHandler(env, partitions)
    queue_surroundings = QueueSurroundings(
        env,
        nursery,
        cluster,
        partitions,
        flusher,
        waiting,
        offsets,
        retention,
        config.fetch_bytes_max,
    )
    queues = queue_handlers(queue_surroundings)
    staging = staging_handlers(queue_surroundings, keeper, staged_bytes_max=config.staged_bytes_max)
    for serve in (queues.server.run, queues.loss_watch.run, staging.server.run):
        nursery.start_soon(serve)
    extents = LogExtents(
        cluster.raft, cluster.metadata, partitions, offsets, cluster.peers, nursery
    )
    groups = GroupCoordinator(env, cluster.raft, cluster.metadata, extents, config.groups)
    nursery.start_soon(groups.run)
    moves = MovesHandler(cluster.metadata, partitions)
    dispatcher.serve_brokers({api.DESCRIBE_MOVES: moves.describe}, {api.EXTENTS: extents.answer})
    dispatcher.serve_clients(
        ClientHandlers(
            session,
            ProduceHandler(env, partitions, flusher, waiting),
            FetchHandler(env, partitions, waiting, nursery, fetch_bytes_max=config.fetch_bytes_max),
            CommitHandler(groups),
            queues,
            staging,
            {
                api.INIT_PRODUCER: session.init_producer,
                api.DESCRIBE_PRODUCER: ProducersHandler(partitions).describe,
                api.LIST_OFFSETS: offsets.list_offsets,
                **_topics(surroundings, config, keeper, offsets),
                **_groups(groups),
                **_cluster(cluster),
                api.DESCRIBE_CONFIG: BrokerConfigHandler(live_config).describe,
                **_queues(QueueAdminHandler(env, config, cluster, keeper)),
            },
        )
    )


def _topics(
    surroundings: Surroundings,
    config: BrokerConfig,
    keeper: PartitionKeeper,
    offsets: OffsetsHandler,
) -> _Slow:
    cluster, partitions = surroundings.cluster, surroundings.partitions
    topics = TopicsHandler(
        surroundings.env, config, cluster, partitions, keeper, surroundings.flusher
    )
    return {
        api.CREATE_TOPIC: topics.create,
        api.DESCRIBE_TOPICS: topics.describe,
        api.ALTER_TOPIC: topics.alter,
        api.DELETE_TOPIC: topics.delete,
        api.DELETE_RECORDS: topics.delete_records,
        api.ADD_PARTITIONS: topics.add_partitions,
        api.TOPIC_EXTENTS: TopicExtentsHandler(cluster, partitions).answer,
        api.TOPIC_USAGE: TopicUsageHandler(surroundings.env, cluster, partitions, offsets).answer,
    }


def _groups(groups: GroupCoordinator) -> _Slow:
    administration = groups.administration
    return {
        api.GROUP_HEARTBEAT: groups.heartbeat,
        api.FETCH_OFFSETS: groups.fetch_offsets,
        api.LIST_GROUPS: administration.list_groups,
        api.DESCRIBE_GROUPS: administration.describe_groups,
        api.RESET_OFFSETS: administration.reset_offsets,
        api.DELETE_GROUP: administration.delete_group,
    }


def _cluster(cluster: ClusterNode) -> _Slow:
    administration = ClusterHandler(cluster)
    return {
        api.ELECT_LEADERS: administration.elect,
        api.ALTER_CLUSTER: administration.alter,
        api.DRAIN_BROKER: administration.drain,
        api.UNREGISTER_BROKER: administration.unregister,
        api.REASSIGN: ReassignmentHandler(cluster).reassign,
    }


def _queues(queues: QueueAdminHandler) -> _Slow:
    return {
        api.CREATE_QUEUE: queues.create,
        api.DESCRIBE_QUEUES: queues.describe,
        api.ALTER_QUEUE: queues.alter,
        api.DELETE_QUEUE: queues.delete,
    }
