"""Table of APIs: the handler of each API of brokers and clients.

Shell: builds the handlers of one broker, in the order in which the broker begins to serve them.
"""

from dataclasses import replace
from functools import partial

from tidelog.broker.collectors.broker_collector import BrokerCollector, BrokerParts
from tidelog.broker.collectors.group_collector import GroupCollector
from tidelog.broker.collectors.metrics_collector import MetricsCollector
from tidelog.broker.collectors.queue_collector import QueueCollector
from tidelog.broker.collectors.read_metrics import ReadMetricsHandler
from tidelog.broker.collectors.replica_walk import ReplicaWalk
from tidelog.broker.collectors.threshold_collector import ThresholdCollector
from tidelog.broker.config.dynamic_config import DynamicConfig
from tidelog.broker.dispatch import (
    Appending,
    Deferred,
    Dispatcher,
    FromNode,
    Immediate,
    InTask,
    InTaskAs,
    Routes,
    run_in_task,
)
from tidelog.broker.handlers.access import AccessHandler, AwaitMetadataHandler
from tidelog.broker.handlers.access_keys import AccessKeysHandler
from tidelog.broker.handlers.broker_config import BrokerConfigHandler
from tidelog.broker.handlers.cluster import ClusterHandler
from tidelog.broker.handlers.commit_offsets import CommitHandler
from tidelog.broker.handlers.events import EventsHandler
from tidelog.broker.handlers.feature_level import (
    require_batch_format,
    require_redrive_to_sources,
)
from tidelog.broker.handlers.fetch import FetchHandler
from tidelog.broker.handlers.handshake import HandshakeHandler, NodeIdentityHandler
from tidelog.broker.handlers.held_batches import HeldBatches
from tidelog.broker.handlers.hot_keys import HotKeysHandler
from tidelog.broker.handlers.keys import KeysHandler
from tidelog.broker.handlers.list_offsets import ListOffsetsHandler
from tidelog.broker.handlers.metadata import MetadataHandler
from tidelog.broker.handlers.offset_lookup import OffsetLookup
from tidelog.broker.handlers.produce import ProduceHandler
from tidelog.broker.handlers.producer_ids import ProducerIdsHandler, ProducersHandler
from tidelog.broker.handlers.queue_admin import QueueAdminHandler
from tidelog.broker.handlers.quotas import QuotasHandler
from tidelog.broker.handlers.raft import RaftHandler
from tidelog.broker.handlers.reassignment import ListReassignmentsHandler, ReassignmentHandler
from tidelog.broker.handlers.safe_to_stop import SafeToStopHandler
from tidelog.broker.handlers.topic_usage import TopicUsageHandler
from tidelog.broker.handlers.topics import TopicsHandler
from tidelog.broker.handlers.users import UsersHandler
from tidelog.broker.hot.hot_traffic import HotTraffic
from tidelog.broker.key_manager import KeyManager
from tidelog.broker.metadata_applier import MetadataApplier
from tidelog.broker.partitions.offset_search import OffsetSearch
from tidelog.broker.queues.handlers.deduplication_windows import DeduplicationWindows
from tidelog.broker.queues.handlers.message_groups import MessageGroupsHandler
from tidelog.broker.queues.handlers.peek import PeekHandler
from tidelog.broker.queues.handlers.receive import ReceiveHandler
from tidelog.broker.queues.handlers.send import SendHandler
from tidelog.broker.queues.handlers.settle import SettleHandler
from tidelog.broker.queues.handlers.whole_queue import WholeQueueHandler
from tidelog.broker.queues.queue_server import QueueServer
from tidelog.broker.queues.retention_watch import RetentionWatch
from tidelog.broker.replication.context import ReplicationContext
from tidelog.broker.replication.role_transitions import RoleTransitions
from tidelog.broker.requests.response import ResponseHandle
from tidelog.broker.requests.steps import Steps
from tidelog.broker.security.access_keys import require_private
from tidelog.broker.security.authentication import AuthenticationHandler
from tidelog.broker.security.identities import ClientIdentities
from tidelog.broker.security.node_certificates import NodeCertificates
from tidelog.broker.transactions.handlers import StageHandler, TransactionHandler
from tidelog.broker.transactions.server import TransactionServer
from tidelog.coordinator.group_coordinator.admin import GroupAdministration
from tidelog.coordinator.group_coordinator.coordinator import GroupCoordinator
from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.node import ClusterNode
from tidelog.wire.messages.access_keys import AlterAccessKeysRequest
from tidelog.wire.messages.hot_keys import HotKeysReply, HotKeysRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.protocol import api


def handshake_routes(introduction: HandshakeHandler, identity: NodeIdentityHandler) -> Routes:
    """Return the routes that are served to all peers, from the first connection on."""
    return {
        api.HELLO: Immediate(introduction.hello),
        api.PROVE_NODE: Deferred(identity.prove),
    }


def authentication_routes(authentication: AuthenticationHandler) -> Routes:
    """Return the route by which clients prove their identity, from the first connection on."""
    return {api.AUTHENTICATE: Deferred(authentication.authenticate)}


def certificate_routes(certificates: NodeCertificates) -> Routes:
    """Return the route that shows the own certificate, from the first connection on."""
    return {api.LIST_CERTIFICATES: Immediate(certificates.describe)}


def discovery_routes(introduction: HandshakeHandler) -> Routes:
    """Return the routes that are served to nodes, from the first connection on."""
    return {api.PEER_STATUS: Immediate(introduction.peer_status)}


def operator_routes(cluster: ClusterNode) -> Routes:
    """Return the routes that administrators need most when the cluster has no majority."""
    return {
        api.DESCRIBE_CLUSTER: Immediate(ClusterHandler(cluster).describe),
        api.SAFE_TO_STOP: InTask(SafeToStopHandler(cluster).handle),
    }


def cluster_routes(cluster: ClusterNode) -> Routes:
    """Return the routes for nodes that are served once this node takes part in its cluster."""
    raft, commands = RaftHandler(cluster.raft), cluster.command_client
    return {
        api.RAFT: FromNode(raft.handle),
        api.RAFT_SNAPSHOT: FromNode(raft.handle_snapshot),
        api.FORWARD_COMMAND: InTask(commands.decide),
        api.BROKER_HEARTBEAT: InTask(commands.take_heartbeat),
        api.JOIN: InTask(commands.join),
        api.AWAIT_METADATA: InTask(AwaitMetadataHandler(cluster).wait),
    }


def replication_routes(roles: RoleTransitions) -> Routes:
    """Return the routes that followers use."""
    return {
        api.REPLICA_FETCH: Deferred(roles.server.fetch),
        api.REPLICA_DURABLE: Deferred(roles.server.durable),
        api.REPLICA_READ: Deferred(roles.server.reader.read),
    }


class ApiHandlers:
    """Handlers for clients, and for brokers that ask on behalf of clients."""

    def __init__(
        self,
        context: ReplicationContext,
        dynamic_config: DynamicConfig,
        applier: MetadataApplier,
        *,
        keys: KeyManager,
        identities: ClientIdentities,
        parts: BrokerParts,
    ) -> None:
        """Build the handlers of a broker that has opened its logs; `parts` have its counts."""
        self._context = context
        self._dynamic_config = dynamic_config
        self._config = dynamic_config.own
        self._applier = applier
        self._keys = keys
        self._identities = identities
        self._parts = parts
        self._purgatory = parts.purgatory
        self._env, self._nursery = context.env, context.nursery
        self._cluster, self._partitions = context.cluster, context.partitions
        self._group_commit = context.group_commit
        self.hot_traffic = HotTraffic(
            self._cluster,
            self._partitions,
            is_sampling=self._config.hot_keys_sampling == "on",
        )
        self._search = OffsetSearch(self._env)
        self._list_offsets = ListOffsetsHandler(
            self._cluster.raft,
            self._cluster.metadata,
            self._partitions,
            search=self._search,
            peers=self._cluster.peers,
        )

    def start(self, dispatcher: Dispatcher) -> MetricsCollector:
        """Begin to serve clients; return the metrics of all that is served."""
        self._nursery.start_soon(self.hot_traffic.run)
        config = self._dynamic_config
        self._nursery.start_soon(self._keys.run, lambda: config().maintenance_interval_ms / 1000)
        queues, groups = self._queue_server(), self._group_coordinator()
        dispatcher.end_turn, queues.connections = queues.end_turn, dispatcher
        metrics = self._metrics(queues, groups.administration)
        moves = ListReassignmentsHandler(self._cluster.metadata, self._partitions)
        dispatcher.serve_all({api.LIST_REASSIGNMENTS: Immediate(moves.handle)})
        dispatcher.serve_nodes({api.LIST_OFFSETS: InTask(self._list_offsets.answer)})
        keys = KeysHandler(self._cluster, self._partitions, self._keys)
        dispatcher.serve_nodes({api.LIST_KEYS: InTask(keys.list_all)})
        dispatcher.serve_clients(
            {
                **self._records(),
                **self._topics(),
                **self._groups(groups),
                **self._cluster_admin(),
                **self._access(),
                **self._queue_admin(),
                **self._queues(queues),
                **self._transactions(dispatcher),
                api.ALTER_KEYS: InTask(keys.alter),
                api.LIST_KEYS: InTask(keys.list_all),
                api.READ_METRICS: InTask(ReadMetricsHandler(metrics).read),
            }
        )
        return metrics

    def _metrics(
        self, queues: QueueServer, administration: GroupAdministration
    ) -> MetricsCollector:
        cluster, topics = self._cluster, self._partitions.topic_counts

        def topic_of(topic_id: bytes) -> Topic | None:
            return cluster.metadata.state.catalog.topic_by_id(topic_id)

        def topic_name(topic_id: bytes) -> str | None:
            topic = topic_of(topic_id)
            return None if topic is None else topic.name

        def has_topic(name: str) -> bool:
            return cluster.metadata.state.catalog.has_topic(name)

        groups = GroupCollector(
            administration,
            self._nursery,
            is_controller=lambda: cluster.raft.is_active_leader,
            topic_name=topic_name,
        )
        maximum = self._config.metrics_objects_max
        topics.maximum = queues.counts.maximum = groups.maximum = maximum
        return MetricsCollector(
            BrokerCollector(self._parts, self._dynamic_config, cluster, nursery=self._nursery),
            ReplicaWalk(
                self._partitions,
                topic_of=topic_of,
                has_series=topics.has_own,
            ),
            topics,
            has_topic=has_topic,
            queues=QueueCollector(queues),
            groups=groups,
            thresholds=ThresholdCollector(cluster.metadata, queues.counts),
            hot=self.hot_traffic,
        )

    def _records(self) -> Routes:
        env, partitions, purgatory = self._env, self._partitions, self._purgatory
        metadata = MetadataHandler(self._config, self._cluster, partitions)
        produce = ProduceHandler(
            env,
            partitions,
            self._group_commit,
            purgatory=purgatory,
            require_format=partial(require_batch_format, self._cluster),
            sample=self.hot_traffic.sample,
            held=HeldBatches(partitions, purgatory),
        )
        fetch = FetchHandler(
            env,
            partitions,
            purgatory,
            nursery=self._nursery,
            fetch_max_bytes=self._config.fetch_max_bytes,
        )

        def describe(message: MetadataRequest, response: ResponseHandle) -> Steps | None:
            if metadata.may_be_behind(message):
                ask = partial(
                    metadata.describe_after_asking,
                    local=response.context.local,
                    version=response.version,
                )
                self._nursery.start_soon(run_in_task, ask, message, response)
                return None
            return metadata.answer(message, response)

        return {
            api.METADATA: Deferred(describe),
            api.INIT_PRODUCER: InTask(ProducerIdsHandler(self._cluster).init),
            api.PRODUCE: Appending(produce.handle),
            api.DESCRIBE_PRODUCER: InTask(ProducersHandler(partitions).describe),
            api.FETCH: Deferred(fetch.handle),
            api.LIST_OFFSETS: InTask(self._list_offsets.answer),
        }

    def _topics(self) -> Routes:
        topics = TopicsHandler(
            self._env,
            self._config,
            self._cluster,
            partitions=self._partitions,
            applier=self._applier,
            group_commit=self._group_commit,
        )
        usage = TopicUsageHandler(self._env, self._cluster, self._partitions, search=self._search)
        return {
            api.CREATE_TOPIC: InTaskAs(topics.create),
            api.DESCRIBE_TOPICS: InTask(topics.describe),
            api.LIST_TOPICS: InTask(topics.list_names),
            api.ALTER_TOPIC: InTask(topics.alter),
            api.DELETE_TOPIC: InTask(topics.delete),
            api.DELETE_RECORDS: InTask(topics.delete_records),
            api.ADD_PARTITIONS: InTask(topics.add_partitions),
            api.TOPIC_USAGE: InTask(usage.answer),
        }

    def _group_coordinator(self) -> GroupCoordinator:
        cluster = self._cluster
        lookup = OffsetLookup(
            cluster.raft,
            cluster.metadata,
            self._partitions,
            local=self._list_offsets,
            peers=cluster.peers,
            nursery=self._nursery,
        )
        groups = GroupCoordinator(
            self._env,
            cluster.raft,
            cluster.metadata,
            offsets=lookup,
            config=self._config.groups,
            may_delete=lambda: cluster.clock.deletion_ms() is not None,
        )
        self._nursery.start_soon(groups.run)
        return groups

    def _groups(self, groups: GroupCoordinator) -> Routes:
        administration = groups.administration
        return {
            api.GROUP_HEARTBEAT: InTask(groups.heartbeat),
            api.COMMIT_OFFSETS: Deferred(CommitHandler(groups).handle),
            api.FETCH_OFFSETS: InTask(groups.fetch_offsets),
            api.LIST_GROUPS: InTask(administration.list_groups),
            api.DESCRIBE_GROUPS: InTask(administration.describe_groups),
            api.RESET_OFFSETS: InTask(administration.reset_offsets),
            api.ALTER_GROUP: InTask(administration.alter_group),
            api.DELETE_GROUP: InTask(administration.delete_group),
        }

    def _cluster_admin(self) -> Routes:
        administration, users = ClusterHandler(self._cluster), UsersHandler(self._cluster)
        quotas = QuotasHandler(self._cluster)
        return {
            api.ELECT_LEADERS: InTask(administration.elect),
            api.ALTER_CLUSTER_CONFIG: InTask(administration.alter),
            api.DRAIN_BROKER: InTask(administration.drain),
            api.UNREGISTER_BROKER: InTask(administration.unregister),
            api.UPDATE_FEATURES: InTask(administration.update_features),
            api.ACKNOWLEDGE_EVENTS: InTask(EventsHandler(self._cluster).acknowledge),
            api.ALTER_QUOTAS: InTask(quotas.alter),
            api.LIST_QUOTAS: InTask(quotas.list_quotas),
            api.REASSIGN: InTask(ReassignmentHandler(self._cluster).reassign),
            api.DESCRIBE_CONFIG: InTask(BrokerConfigHandler(self._dynamic_config).describe),
            api.ALTER_USERS: InTask(users.alter),
            api.LIST_USERS: Immediate(users.list_users),
        }

    def _access(self) -> Routes:
        access = AccessHandler(self._cluster, mode=self._config.authorization)
        keys = self._identities.access_keys
        access_keys = AccessKeysHandler(self._cluster, keys)

        def alter_keys(message: AlterAccessKeysRequest, response: ResponseHandle) -> None:
            require_private(response.context)
            self._nursery.start_soon(run_in_task, access_keys.alter, message, response)

        return {
            api.ALTER_ACCESS: InTask(access.alter),
            api.LIST_ACCESS: InTask(access.list_all),
            api.EXPLAIN_ACCESS: InTask(access.explain),
            api.ALTER_ACCESS_KEYS: Deferred(alter_keys),
            api.LIST_ACCESS_KEYS: Immediate(keys.describe),
            api.GET_SIGNING_KEY: Deferred(access_keys.get_signing_key),
            api.IMPERSONATE: Deferred(self._identities.impersonation.impersonate),
        }

    def _queue_admin(self) -> Routes:
        queues = QueueAdminHandler(self._env, self._config, self._cluster, applier=self._applier)
        return {
            api.CREATE_QUEUE: InTaskAs(queues.create),
            api.CREATE_QUEUES: InTaskAs(queues.create_all),
            api.DESCRIBE_QUEUES: InTask(queues.describe),
            api.LIST_QUEUES: InTask(queues.list_names),
            api.ALTER_QUEUE: InTask(queues.alter),
            api.DELETE_QUEUE: InTask(queues.delete),
        }

    def _queue_server(self) -> QueueServer:
        return QueueServer(
            replace(self._env, clock=self._cluster.clock.steady),
            self._nursery,
            self._cluster,
            partitions=self._partitions,
            group_commit=self._group_commit,
            search=self._search,
            deletion_ms=self._cluster.clock.deletion_ms,
        )

    def _queues(self, server: QueueServer) -> Routes:
        nursery, purgatory = self._nursery, self._purgatory
        max_bytes = self._config.fetch_max_bytes
        windows = DeduplicationWindows(server)
        watch = RetentionWatch(server)
        self._partitions.rest_of_queue = watch.rest_of
        for run in (server.run, watch.run):
            nursery.start_soon(run)
        whole_queue = WholeQueueHandler(
            server,
            windows,
            require_sources=partial(require_redrive_to_sources, self._cluster),
        )
        send = SendHandler(
            server,
            windows,
            self._group_commit,
            purgatory=purgatory,
            require_format=partial(require_batch_format, self._cluster),
            sample=self.hot_traffic.sample,
        )
        settle = SettleHandler(server, purgatory, nursery)
        receive = ReceiveHandler(server, purgatory, settle=settle, max_bytes=max_bytes)
        groups = MessageGroupsHandler(server)
        keys = HotKeysHandler(self._partitions, self.hot_traffic)

        async def hot_keys(request: HotKeysRequest) -> HotKeysReply:
            topic = self._cluster.metadata.state.catalog.topic_by_id(request.topic_id)
            is_queue = topic is not None and topic.queue is not None
            return await (groups if is_queue else keys).answer(request)

        return {
            api.SEND: Appending(send.handle),
            api.RECEIVE: Deferred(receive.handle),
            api.END_RECEIVES: Deferred(receive.end_all),
            api.SETTLE: Deferred(settle.handle),
            api.PEEK: Deferred(PeekHandler(server, nursery, max_bytes=max_bytes).handle),
            api.COUNT_MESSAGES: InTask(whole_queue.count),
            api.PURGE: InTask(whole_queue.purge),
            api.QUEUE_SEEK: InTask(whole_queue.seek),
            api.REDRIVE: InTask(whole_queue.redrive),
            api.GET_PURGE_OFFSET: InTask(whole_queue.get_purge_offset),
            api.CANCEL_SCHEDULED: InTask(whole_queue.cancel),
            api.DESCRIBE_REDRIVE: InTask(whole_queue.describe_redrive),
            api.HOT_KEYS: InTask(hot_keys),
        }

    def _transactions(self, dispatcher: Dispatcher) -> Routes:
        env, cluster = self._env, self._cluster
        server = TransactionServer(
            env,
            self._nursery,
            cluster,
            partitions=self._partitions,
            group_commit=self._group_commit,
            max_transaction_bytes_per_partition=self._config.max_transaction_bytes_per_partition,
            sample=self.hot_traffic.sample,
        )
        self._nursery.start_soon(server.run)
        stage = StageHandler(
            env,
            server,
            self._group_commit,
            purgatory=self._purgatory,
            require_format=partial(require_batch_format, cluster),
        )
        finished = server.finished
        dispatcher.serve_nodes({api.AWAIT_APPENDED: InTask(finished.await_appended)})
        transactions = TransactionHandler(env, cluster, self._applier, finished=finished)
        return {
            api.BEGIN_TRANSACTION: InTask(transactions.begin),
            api.STAGE: Appending(stage.handle),
            api.COMMIT_TRANSACTION: InTask(transactions.commit),
            api.ABORT_TRANSACTION: InTask(transactions.abort),
            api.LIST_TRANSACTIONS: InTask(transactions.list_all),
            api.FORGET_TRANSACTIONS: InTask(transactions.forget),
        }
