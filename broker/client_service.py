"""Which handler answers which API of clients.

Shell: builds the handlers of one broker and hands them to its dispatcher.
"""

from collections.abc import Mapping
from typing import Any

from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.broker.config.dynamic_config import DynamicConfig
from tidelog.broker.dispatch import ClientHandlers, Dispatcher, SlowHandler
from tidelog.broker.handlers.broker_config import BrokerConfigHandler
from tidelog.broker.handlers.cluster import ClusterHandler
from tidelog.broker.handlers.fetch import FetchHandler
from tidelog.broker.handlers.groups import CommitHandler
from tidelog.broker.handlers.moves import MovesHandler
from tidelog.broker.handlers.offset_lookup import LogExtents
from tidelog.broker.handlers.offsets import OffsetsHandler
from tidelog.broker.handlers.produce import ProduceHandler
from tidelog.broker.handlers.producers import ProducersHandler
from tidelog.broker.handlers.queue_admin import QueueAdminHandler
from tidelog.broker.handlers.reassignment import ReassignmentHandler
from tidelog.broker.handlers.session import SessionHandler
from tidelog.broker.handlers.topic_extents import TopicExtentsHandler
from tidelog.broker.handlers.topic_usage import TopicUsageHandler
from tidelog.broker.handlers.topics import TopicsHandler
from tidelog.broker.metadata_applier import PartitionKeeper
from tidelog.broker.queues.handler_table import QueueContext, queue_handlers
from tidelog.broker.replication.surroundings import Surroundings
from tidelog.broker.requests.purgatory import Waiting
from tidelog.broker.transactions.handler_table import transaction_handlers
from tidelog.coordinator.group_coordinator.coordinator import GroupCoordinator
from tidelog.coordinator.node import ClusterNode
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api

_Slow = Mapping[Api[Any, Any], SlowHandler]


def serve_clients(
    surroundings: Surroundings,
    dynamic_config: DynamicConfig,
    keeper: PartitionKeeper,
    *,
    waiting: Waiting,
    dispatcher: Dispatcher,
) -> None:
    """Begin to serve clients, and the other brokers that ask on their behalf."""
    config = dynamic_config.own
    env, nursery, cluster = surroundings.env, surroundings.nursery, surroundings.cluster
    partitions, flusher = surroundings.partitions, surroundings.flusher
    session = SessionHandler(config, cluster, partitions)
    offsets = OffsetsHandler(env, partitions)
    queue_surroundings = QueueContext(
        env,
        nursery,
        cluster,
        partitions,
        flusher,
        waiting,
        offsets,
        config.fetch_max_bytes,
    )
    queues = queue_handlers(queue_surroundings)
    staging = transaction_handlers(
        queue_surroundings,
        keeper,
        max_transaction_bytes_per_partition=config.max_transaction_bytes_per_partition,
    )
    for serve in (queues.server.run, queues.retention_warning.run, staging.server.run):
        nursery.start_soon(serve)
    extents = LogExtents(
        cluster.raft,
        cluster.metadata,
        partitions,
        offsets=offsets,
        peers=cluster.peers,
        nursery=nursery,
    )
    groups = GroupCoordinator(
        env, cluster.raft, cluster.metadata, extents=extents, config=config.groups
    )
    nursery.start_soon(groups.run)
    moves = MovesHandler(cluster.metadata, partitions)
    dispatcher.serve_brokers({api.DESCRIBE_MOVES: moves.describe}, {api.EXTENTS: extents.answer})
    dispatcher.serve_clients(
        ClientHandlers(
            session,
            ProduceHandler(env, partitions, flusher, waiting=waiting),
            FetchHandler(
                env, partitions, waiting, nursery=nursery, fetch_max_bytes=config.fetch_max_bytes
            ),
            CommitHandler(groups),
            queues,
            staging,
            {
                api.INIT_PRODUCER: session.init_producer,
                api.DESCRIBE_PRODUCER: ProducersHandler(partitions).describe,
                api.LIST_OFFSETS: offsets.list_offsets,
                **_topics(surroundings, config, keeper, offsets=offsets),
                **_groups(groups),
                **_cluster(cluster),
                api.DESCRIBE_CONFIG: BrokerConfigHandler(dynamic_config).describe,
                **_queues(QueueAdminHandler(env, config, cluster, keeper=keeper)),
            },
        )
    )


def _topics(
    surroundings: Surroundings,
    config: BrokerConfig,
    keeper: PartitionKeeper,
    *,
    offsets: OffsetsHandler,
) -> _Slow:
    cluster, partitions = surroundings.cluster, surroundings.partitions
    topics = TopicsHandler(
        surroundings.env,
        config,
        cluster,
        partitions=partitions,
        keeper=keeper,
        flusher=surroundings.flusher,
    )
    return {
        api.CREATE_TOPIC: topics.create,
        api.DESCRIBE_TOPICS: topics.describe,
        api.ALTER_TOPIC: topics.alter,
        api.DELETE_TOPIC: topics.delete,
        api.DELETE_RECORDS: topics.delete_records,
        api.ADD_PARTITIONS: topics.add_partitions,
        api.TOPIC_EXTENTS: TopicExtentsHandler(cluster, partitions).answer,
        api.TOPIC_USAGE: TopicUsageHandler(
            surroundings.env, cluster, partitions, offsets=offsets
        ).answer,
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
