"""The broker: start and stop of all its parts.

Shell: owns the order in which parts start and stop.

A start goes from local parts to those that need other nodes: data directory, address, place in the
cluster, registration, logs; then the broker serves clients. A stop goes back: other brokers take
over leaderships, clients get their replies, everything is synced to disk.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import Final, final

import trio

from tidelog.broker.api_handlers import (
    ApiHandlers,
    authentication_routes,
    certificate_routes,
    cluster_routes,
    discovery_routes,
    handshake_routes,
    operator_routes,
    replication_routes,
)
from tidelog.broker.audit.audit_log import AuditLog
from tidelog.broker.audit.audit_topic import AuditTopic
from tidelog.broker.collectors.broker_collector import BrokerParts, LoopLag
from tidelog.broker.collectors.metrics_collector import MetricsCollector
from tidelog.broker.collectors.partition_collector import PartitionCollector
from tidelog.broker.config.broker_config import DEFAULT, BrokerConfig, format_address, parse_address
from tidelog.broker.config.dynamic_config import DynamicConfig
from tidelog.broker.config.exposure import open_addresses
from tidelog.broker.dispatch import Dispatcher
from tidelog.broker.handlers.handshake import HandshakeHandler, NodeIdentityHandler
from tidelog.broker.http.health import health_pages
from tidelog.broker.http.http_server import HttpServer, listen_http
from tidelog.broker.http.metrics_pages import metrics_pages
from tidelog.broker.http.page import Handler
from tidelog.broker.key_manager import KeyManager, MasterSource, no_master_source
from tidelog.broker.maintenance.compactor import CompactionLimits, CompactionProgress, Compactor
from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.maintenance.idle_logs import IdleLogs
from tidelog.broker.maintenance.maintenance import Maintenance
from tidelog.broker.maintenance.retention import Retention
from tidelog.broker.maintenance.scrubber import Scrubber, ScrubProgress
from tidelog.broker.metadata_applier import MetadataApplier
from tidelog.broker.metrics.event_counts import CountingProbe
from tidelog.broker.network.acceptor import Acceptor, listen
from tidelog.broker.partitions.data_directory import DataDirectory, DiskIds, open_data_directory
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.broker.queues.dead_letters.topic_producer import TopicProducer
from tidelog.broker.quotas.broker_quotas import BrokerQuotas
from tidelog.broker.quotas.storage_watch import StorageWatch
from tidelog.broker.replication.context import ReplicationContext
from tidelog.broker.replication.role_transitions import RoleTransitions
from tidelog.broker.requests.purgatory import Purgatory
from tidelog.broker.requests.request_auditor import RequestAuditor
from tidelog.broker.security.access_control import AccessControl
from tidelog.broker.security.administrators import Administrators
from tidelog.broker.security.denials import Denials
from tidelog.broker.security.identities import ClientIdentities
from tidelog.broker.security.insecure_listen import InsecureListenWarning
from tidelog.broker.security.node_certificates import NodeCertificates
from tidelog.broker.security.operator_inputs import NO_INPUTS, FetchKeys, OperatorInputs
from tidelog.coordinator.bootstrap.open_node import open_node
from tidelog.coordinator.controller.broker_clock import BrokerClock
from tidelog.coordinator.controller.broker_lifecycle import BrokerInfo, BrokerLifecycle
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.node import ClusterNode
from tidelog.logstore.disk.disk import Disk
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.wire.env.env import Env, Listener
from tidelog.wire.errors import ConfigError, LogOfflineError, TidelogError
from tidelog.wire.messages.cluster import PeerStatusReply
from tidelog.wire.protocol import api
from tidelog.wire.security.administrator_file import NewAdministrator
from tidelog.wire.transport.node_rpc import NodeDialer

_log = logging.getLogger("tidelog.broker")

_VERSION: Final = version("tidelog")
"""Read when the program is loaded, since a start reads files only through its `Disk`."""

_AUDIT_FINISH_S: Final = 1.0
"""Time in seconds that a stop waits for the last audit records, in addition."""

_LEAVING_S: Final = 5.0
"""Time in seconds that a stop waits for the cluster to elect other leaders for this broker's
partitions."""


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    """Resources that a broker holds for its clients at this moment."""

    connection_count: int
    waiting_count: int
    """Requests that wait for acknowledgements or for data."""
    waiter_count: int
    """Entries of such requests at partitions; one request may wait at many."""
    queued_max_request_bytes: int
    """Memory lent to connections, of `queued_max_request_bytes` in the settings."""
    scrub: ScrubProgress
    """Progress of scrubbing."""
    compaction: CompactionProgress
    """Progress of compaction."""


@final
class Broker:
    """A broker, from the moment that its address is known."""

    master_source: MasterSource | None = None
    """Source of the master keys; set before `start`."""
    _audit: AuditLog | None = None
    _idle_logs: IdleLogs | None = None

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        directory: DataDirectory,
        *,
        listener: Listener,
        nursery: trio.Nursery,
        secret: bytes,
        sources: Mapping[str, str] | None = None,
        http_listener: Listener | None = None,
    ) -> None:
        """Create the parts of a broker that does not serve yet; tasks run in `nursery`.

        All nodes of a cluster have the same
        `secret`. `sources` says where each setting of `config` comes from, as in `ResolvedConfig`.
        """
        self._sources = sources
        self._events = CountingProbe(env.probe)
        env = replace(env, probe=self._events)
        self._clock = BrokerClock(env.clock, env.probe, skew_max_ms=config.clock_skew_max_ms)
        env = replace(env, clock=self._clock)
        self._env = env
        self._config = config
        self._directory = directory
        self._nursery = nursery
        self._files = FileCache(directory.disk, max_open_files=config.max_open_files)
        self._introduction = HandshakeHandler(config, api.APIS, version=_VERSION)
        self._certificates = NodeCertificates(env, node_id=config.node_id, mode=config.tls)
        self._identity = NodeIdentityHandler(
            env.random,
            node_id=config.node_id,
            secret=secret if self._certificates.needs_secret else None,
        )
        self._dialer = NodeDialer(
            self._certificates.network,
            env.random.randbytes,
            node_id=config.node_id,
            secret=secret,
            identify=self._certificates.identify,
        )
        self._quotas = BrokerQuotas(env.probe)
        self._dispatcher = Dispatcher(nursery, api.APIS, self._quotas)
        self._identities = ClientIdentities(
            env, nursery, is_required=config.authentication == "required", secret=secret
        )
        self._dispatcher.gate = self._identities.gate
        self._acceptor = Acceptor(
            env, config, listener, dispatcher=self._dispatcher, nursery=nursery
        )
        self._http: HttpServer | None = None
        if http_listener is not None:
            self._http = HttpServer(
                env, http_listener, pages=self._pages(), refusals=self._acceptor.refusals
            )
        self._denials = Denials(env.probe, is_enforced=config.authorization == "enforce")
        self._purgatory = Purgatory()
        self._group_commit = GroupCommit(env, nursery)
        self._loop_lag = LoopLag()
        self._coordinating = trio.CancelScope()
        self._registering = trio.CancelScope()
        self._has_left_cluster = trio.Event()
        self._cluster: ClusterNode | None = None
        self._lifecycle: BrokerLifecycle | None = None
        self._partitions: ReplicaManager | None = None
        self._roles: RoleTransitions | None = None
        self._scrubber: Scrubber | None = None
        self._compactor: Compactor | None = None
        self._context: ReplicationContext | None = None
        self._metrics: MetricsCollector | None = None
        self.failure: TidelogError | None = None
        """Error by which this broker must stop, from another part of the cluster or a disk."""

    @property
    def address(self) -> str:
        """`HOST:PORT` at which the broker listens."""
        return format_address(*self._acceptor.address)

    @property
    def http_address(self) -> str:
        """`HOST:PORT` of the HTTP server; empty without one."""
        return "" if self._http is None else format_address(*self._http.address)

    @property
    def cluster_id(self) -> str:
        """Identity of the cluster of this broker; empty before the broker has joined one."""
        return self._directory.cluster_id

    @property
    def quotas(self) -> BrokerQuotas:
        """Quotas of principals, and the turns of their connections."""
        return self._quotas

    @property
    def metrics(self) -> MetricsCollector:
        """The metrics of this broker, once it serves clients."""
        assert self._metrics is not None
        return self._metrics

    def statistics(self) -> BrokerStatistics:
        """Return the resources that are held for clients now."""
        partitions = [] if self._partitions is None else self._partitions.all()
        return BrokerStatistics(
            connection_count=len(self._acceptor.connections),
            waiting_count=len(self._purgatory),
            waiter_count=sum(each.waiter_count for each in partitions),
            queued_max_request_bytes=self._acceptor.memory.used_bytes,
            scrub=ScrubProgress() if self._scrubber is None else self._scrubber.progress,
            compaction=(
                CompactionProgress() if self._compactor is None else self._compactor.progress
            ),
        )

    def reload_certificate(self) -> None:
        """Look for a new certificate now, and not only in the next maintenance interval."""
        self._certificates.request_reload()

    async def start(self, inputs: OperatorInputs = NO_INPUTS) -> None:
        """Join the cluster, open the logs, and begin to serve.

        A cluster without users has the administrator of `inputs` before this broker serves clients.

        Raises:
            DataDirectoryError: The data directory is damaged, or belongs to another node or
                cluster.
            ConfigError: The peers contradict each other, or the administrator's password is not
                legal.
            OSError: The disk failed.
        """
        self._accept(inputs)
        cluster = await self._enter_cluster()
        lifecycle = self._make_lifecycle(cluster)
        await lifecycle.register()
        await lifecycle.learn_time()
        self._dispatcher.waiting_for = "it is opening its logs"
        partitions = ReplicaManager(
            self._env,
            self._directory,
            self._files,
            state=lambda: cluster.metadata.state,
            may_lead=lifecycle.may_lead,
        )
        keys = await self._load_keys(cluster, partitions)
        self._context = ReplicationContext(
            self._env,
            self._nursery,
            cluster,
            lifecycle,
            partitions,
            self._group_commit,
            self._config.replica_lag_time_max_ms,
        )
        self._begin_audit(cluster)
        await self._find_administrator(cluster, inputs.administrator)
        roles = self._roles = RoleTransitions(self._context, self._purgatory)
        self._dispatcher.serve_nodes(replication_routes(roles))
        applier = MetadataApplier(
            self._env, cluster.metadata, partitions, group_commit=self._group_commit, roles=roles
        )
        await applier.start()
        lifecycle.damaged = roles.failed_replicas.damaged
        self._warn_of_large_batches(cluster)
        self._partitions = partitions
        config = DynamicConfig(self._config, lambda: cluster.metadata.state.config, self._sources)
        retention = Retention(
            self._env,
            config,
            partitions,
            group_commit=self._group_commit,
            deletion_ms=self._clock.deletion_ms,
        )
        self._metrics = self._handlers(config, applier, keys).start(self._dispatcher)
        self._look_after(config, retention, applier, roles=roles)
        await roles.failed_replicas.remove_damaged_from_isr()
        await partitions.settle_suspects()
        await lifecycle.heartbeat()
        self._nursery.start_soon(self._end_if_it_fails, self._stay_registered)
        self._env.probe(
            "broker_started",
            address=self.address,
            data_dir=self._directory.disk.root,
            node_id=self._config.node_id,
            cluster_id=self.cluster_id,
            was_clean=self._directory.was_clean,
        )

    def _handlers(
        self, config: DynamicConfig, applier: MetadataApplier, keys: KeyManager
    ) -> ApiHandlers:
        assert self._context is not None
        return ApiHandlers(
            self._context,
            config,
            applier,
            keys=keys,
            identities=self._identities,
            parts=self._parts(keys),
        )

    async def _load_keys(self, cluster: ClusterNode, partitions: ReplicaManager) -> KeyManager:
        source = self.master_source or no_master_source
        keys = KeyManager(self._env, cluster, partitions, source=source)
        await keys.load()
        return keys

    def _accept_jwt(self, fetch: FetchKeys) -> None:
        """Let clients authenticate by JWT.

        Raises:
            ConfigError: The library for that is not installed.
        """
        try:
            # Not at the top: joserfc is an extra.
            from tidelog.broker.security.jwt.jwt_logins import JWT, JwtLogins  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise ConfigError(
                "jwt_issuer needs the package joserfc; run: pip install 'tidelog[security]'"
            ) from error
        logins = JwtLogins(self._env, self._config.jwt_rules, fetch)
        self._identities.handler.mechanisms[JWT] = logins.start
        self._nursery.start_soon(logins.run)

    async def _find_administrator(
        self, cluster: ClusterNode, first: NewAdministrator | None
    ) -> None:
        """Return when the cluster has an administrator, if it is to have one.

        Raises:
            ConfigError: The password of the first one is not legal.
        """
        administrators = Administrators(
            self._env, cluster, self._directory, audit=self._dispatcher.audit
        )
        self._nursery.start_soon(self._end_if_it_fails, administrators.recover)
        if first is not None:
            self._dispatcher.waiting_for = "the cluster gets its first administrator"
            await administrators.set_first(first)
        administrators.warn_if_none(self._config)
        # Not before: a client would learn that the credentials of the first one are wrong.
        self._identities.follow(cluster)

    def _accept(self, inputs: OperatorInputs) -> None:
        """Accept connections; those of clients wait until the broker is ready.

        Raises:
            ConfigError: The library for JWT is not installed.
        """
        self._dispatcher.serve_all(handshake_routes(self._introduction, self._identity))
        self._dispatcher.serve_all(authentication_routes(self._identities.handler))
        self._dispatcher.serve_nodes(discovery_routes(self._introduction))
        if inputs.fetch_jwt_keys is not None:
            self._accept_jwt(inputs.fetch_jwt_keys)
        principal_of = self._certificates.identify
        if principal_of is not None:
            self._acceptor.identify = self._identities.certified_clients(principal_of).identify
        self._dispatcher.serve_all(certificate_routes(self._certificates))
        if self._env.secure_network is not None:
            self._nursery.start_soon(
                self._certificates.run, lambda: self._config.maintenance_interval_ms / 1000
            )
        self._nursery.start_soon(self._acceptor.run)
        self._nursery.start_soon(self._quotas.turns.run)
        if self._http is not None:
            self._nursery.start_soon(self._http.run)
            self._nursery.start_soon(self._loop_lag.run)
        addresses = open_addresses(self._config)
        if self._config.insecure_listen == "on" and addresses:
            self._nursery.start_soon(InsecureListenWarning(self._env, addresses).run)

    def _begin_audit(self, cluster: ClusterNode) -> None:
        """Write the audit events of this broker from now on."""
        mode, node_id = self._config.audit, self._config.node_id
        if mode == "off":
            return
        audit = AuditLog(self._env, node_id=node_id, is_required=mode == "required")

        def resource(topic_id: bytes) -> str:
            topic = cluster.metadata.state.catalog.topic_by_id(topic_id)
            if topic is None:
                return f"topic-id:{topic_id.hex()}"
            return f"queue:{topic.queue_name}" if topic.queue_name else f"topic:{topic.name}"

        self._audit = self._dispatcher.audit = audit
        self._dispatcher.auditor = RequestAuditor(audit, self._nursery, names=resource)
        topic = AuditTopic(self._env, cluster, TopicProducer(cluster))
        self._nursery.start_soon(audit.run, topic)

    def _parts(self, keys: KeyManager) -> BrokerParts:
        return BrokerParts(
            self._env,
            self._directory.disk,
            _VERSION,
            self._events,
            self._dispatcher.counts,
            self._acceptor,
            self._purgatory,
            self._group_commit,
            self._loop_lag,
            self._denials.counts,
            keys,
            None if self._audit is None else self._audit.buffer,
        )

    def _pages(self) -> dict[str, Handler]:
        """Return the pages of the HTTP server, by path."""
        return {
            **health_pages(self._dispatcher, lambda: self._cluster),
            **metrics_pages(lambda: self._metrics, self._partition_metrics),
        }

    def _partition_metrics(self) -> PartitionCollector | None:
        partitions = self._partitions
        return None if partitions is None else PartitionCollector(partitions)

    def _look_after(
        self,
        config: DynamicConfig,
        retention: Retention,
        applier: MetadataApplier,
        *,
        roles: RoleTransitions,
    ) -> None:
        """Start the background tasks of this broker."""
        partitions = retention.partitions
        maintenance = Maintenance(
            self._env,
            config,
            retention,
            group_commit=self._group_commit,
            acceptor=self._acceptor,
            retry_logs=applier.retry,
        )
        self._scrubber = Scrubber(self._env, config, partitions, group_commit=self._group_commit)
        self._compactor = Compactor(
            self._env,
            self._directory.disk,
            self._group_commit,
            limits=CompactionLimits(
                self._config.log_cleaner_max_bytes_per_second,
                self._config.log_cleaner_dedupe_buffer_bytes,
            ),
            partitions=lambda: [each for each in partitions.all() if each.config.compaction],
            deletion_ms=self._clock.deletion_ms,
            config_of=lambda partition: (
                None if partition.is_held or partition.why_locked else partition.config.compaction
            ),
        )
        self._idle_logs = IdleLogs(self._env, partitions, deletion_ms=self._clock.deletion_ms)
        storage = StorageWatch(self._quotas, partitions, self._metadata_state)
        for run in (
            storage.run,
            self._idle_logs.run,
            self._purgatory.run,
            maintenance.run,
            applier.run,
            roles.run,
            self._scrubber.run,
            partial(self._compactor.run, lambda: config().maintenance_interval_ms / 1000),
        ):
            self._nursery.start_soon(run)

    def _metadata_state(self) -> ClusterState:
        assert self._cluster is not None
        return self._cluster.metadata.state

    async def stop(self) -> None:
        """Finish requests under way, sync everything, and mark the directory as clean."""
        assert self._cluster is not None
        assert self._partitions is not None
        assert self._scrubber is not None
        assert self._compactor is not None
        assert self._idle_logs is not None
        assert self._roles is not None
        self._env.probe("broker_stopping", address=self.address)
        self._dispatcher.is_stopping = True
        self._scrubber.stop()
        self._compactor.stop()
        await self._hand_over(self._cluster)
        if self._audit is not None:
            # Before connections are refused: this broker may lead the audit topic itself.
            await self._audit.finish(_LEAVING_S)
        self._acceptor.refuse_more()
        self._dispatcher.is_shutting_down = True
        with trio.move_on_after(self._config.shutdown_grace_ms / 1000):
            self._purgatory.close_all()
            await self._acceptor.finish()
        if self._audit is not None:
            # The last outcomes; another broker takes them, unless it leads no audit topic.
            await self._audit.finish(_AUDIT_FINISH_S)
            self._audit.close()
        await self._flush(self._partitions)
        await self._idle_logs.write()  # While this broker leads: only then are they known to rest.
        # An append after the last flush would be lost, although the directory is marked as clean.
        self._roles.stop()
        await self._flush(self._partitions)
        await self._leave(self._cluster, self._partitions)

    async def _flush(self, partitions: ReplicaManager) -> None:
        """Write everything that a start would otherwise scan, and wait for repairs under way."""
        unsettled = [each for each in partitions.all() if each.is_held or not each.log.is_settled]
        for partition in unsettled:
            partition.log.request_checkpoint()
            self._group_commit.request(partition)
        for partition in unsettled:
            with suppress(LogOfflineError):
                await self._group_commit.flush_now(partition)
        await self._group_commit.wait_idle()

    async def _hand_over(self, cluster: ClusterNode) -> None:
        """Hand leaderships over to other brokers, if there are any."""
        others = [
            broker
            for broker in cluster.metadata.state.brokers.values()
            if broker.node_id != cluster.node_id and not broker.is_fenced
        ]
        if others and self._lifecycle is not None:
            await self._lifecycle.controlled_shutdown(timeout_s=_LEAVING_S)
            await cluster.transfer_leadership()

    async def _leave(self, cluster: ClusterNode, partitions: ReplicaManager) -> None:
        self._registering.cancel()
        self._coordinating.cancel()
        await self._has_left_cluster.wait()
        assert self._lifecycle is not None
        broker_epoch = self._lifecycle.broker_epoch
        try:
            await cluster.raft.aclose()
            for partition in partitions.all():
                partition.log.require_online()
            now_ms = self._env.clock.now_ms()
            await self._env.run_in_thread(
                lambda: self._directory.mark_clean(now_ms=now_ms, broker_epoch=broker_epoch)
            )
        except (LogOfflineError, OSError) as error:
            self._env.probe("broker_stopped", severity="warning", is_clean=False, reason=str(error))
        else:
            self._env.probe("broker_stopped", is_clean=True)

    def _control_access(self, cluster: ClusterNode) -> None:
        mode = self._config.authorization
        if mode != "off":
            access = AccessControl(
                lambda: cluster.metadata.state,
                self._denials,
                is_enforced=mode == "enforce",
                is_current=lambda: self._lifecycle is not None and self._lifecycle.may_lead(),
            )
            self._dispatcher.access = self._identities.gateway_access = access

    async def _enter_cluster(self) -> ClusterNode:
        """Find the cluster, or create one, and take part in it."""

        def answer(status: PeerStatusReply) -> None:
            self._introduction.status = lambda: status
            self._dispatcher.waiting_for = "it is looking for the other nodes of its cluster"

        addresses = self._config.peer_addresses
        found = await open_node(
            self._env,
            self._files,
            self._directory,
            dialer=self._dialer,
            addresses=addresses,
            answer=answer,
        )
        answer(found.status)
        cluster = ClusterNode(
            self._env,
            found,
            addresses,
            nursery=self._nursery,
            dialer=self._dialer,
            clock=self._clock,
        )
        self._cluster = cluster
        self._control_access(cluster)
        self._introduction.status = cluster.peer_status

        def note_alone() -> None:
            self._group_commit.is_alone = self._clock.is_alone = cluster.is_alone

        cluster.on_alone(note_alone)
        self._dispatcher.serve_nodes(cluster_routes(cluster))
        self._dispatcher.serve_all(operator_routes(cluster))
        self._dispatcher.waiting_for = "a majority of the cluster's nodes must be there"
        self._nursery.start_soon(self._end_if_it_fails, self._coordinate)
        self._nursery.start_soon(
            self._end_if_it_fails, lambda: cluster.keep_joined(*self._reached_at())
        )
        await cluster.wait_first_term()
        return cluster

    async def _coordinate(self) -> None:
        """Take part in the cluster until this broker stops.

        A sole voter keeps serving when the disk of its metadata fails.

        Raises:
            LogOfflineError: The disk failed, and the other nodes must see that this broker has
                stopped.
        """
        assert self._cluster is not None
        try:
            with self._coordinating:
                await self._cluster.run()
        except LogOfflineError:
            if self._partitions is None or not self._cluster.raft.is_only_voter:
                raise
        finally:
            self._has_left_cluster.set()

    async def _stay_registered(self) -> None:
        """Keep the registration of this broker alive until it stops."""
        assert self._lifecycle is not None
        with self._registering:
            await self._lifecycle.run()

    async def _end_if_it_fails(self, run: Callable[[], Awaitable[None]]) -> None:
        """Stop this broker if `run` raises an error after which it must not go on."""
        try:
            await run()
        except TidelogError as error:
            self._env.probe("broker_must_stop", severity="error", reason=str(error))
            self.failure = error
            self._nursery.cancel_scope.cancel()

    def _make_lifecycle(self, cluster: ClusterNode) -> BrokerLifecycle:
        host, port = self._reached_at()
        info = BrokerInfo(
            cluster.node_id,
            self._directory.identity.disk_id,
            host,
            port,
            self._config.broker_rack,
            self._directory.clean_stop_epoch,
            self._directory.directory_epoch,
        )
        self._lifecycle = BrokerLifecycle(
            self._env,
            cluster.command_client,
            cluster.metadata,
            info=info,
            cluster_id=cluster.raft.cluster_id,
            is_only_voter=lambda: cluster.raft.is_only_voter,
            write_epoch=lambda epoch: self._env.run_in_thread(
                lambda: self._directory.note_epoch(epoch)
            ),
            clock=self._clock,
        )
        self._lifecycle.quota_use = self._quotas.report
        self._lifecycle.on_quota_shares = self._quotas.take_shares
        self._quotas.follow(cluster.metadata)
        return self._lifecycle

    def _reached_at(self) -> tuple[str, int]:
        """Return the address at which brokers and clients reach this broker."""
        if self._config.advertised:
            return parse_address(self._config.advertised)
        return self._config.peer_addresses.get(self._config.node_id, self._acceptor.address)

    def _warn_of_large_batches(self, cluster: ClusterNode) -> None:
        """Warn of topics that allow larger batches than this broker can receive."""
        for topic in cluster.metadata.state.catalog.topics:
            if topic.config.log.max_message_bytes > self._config.max_message_bytes_limit:
                self._env.probe(
                    "batches_beyond_frames",
                    severity="warning",
                    topic=topic.name,
                    max_message_bytes=topic.config.log.max_message_bytes,
                    max_message_bytes_limit=self._config.max_message_bytes_limit,
                )


@asynccontextmanager
async def open_broker(
    config: BrokerConfig,
    env: Env,
    disk: Disk,
    *,
    secret: bytes,
    sources: Mapping[str, str] | None = None,
    master_source: MasterSource = no_master_source,
    inputs: OperatorInputs = NO_INPUTS,
) -> AsyncGenerator[Broker, None]:
    """Run a broker for the duration of the block; then stop it cleanly.

    A broker that was started with peers has started when a majority of its cluster is up. On
    cancellation, or if the block raises, the broker ends at once, as in a crash: acknowledged
    records are safe, and the next start recovers the logs. The block is cancelled when the broker
    must not go on. All nodes of a cluster have the same `secret`. `sources` says where each
    setting comes from, as in `ResolvedConfig`: an `http_listen` that is a default may be in use.
    `inputs` come from files and services of the operator.

    Raises:
        DataDirectoryError: The data directory is in use, damaged, or belongs to another node or
            cluster.
        ConfigError: The broker cannot listen on the address, or the peers contradict each other.
        DuplicateBrokerError: Another process is registered under this broker's node id.
        LogOfflineError: The disk with the metadata failed.
        OSError: The disk failed.
    """
    disk_ids = DiskIds.draw(env.random)
    directory = await env.run_in_thread(
        lambda: open_data_directory(disk, node_id=config.node_id, disk_ids=disk_ids)
    )
    try:
        with ExitStack() as listeners:
            # The addresses come first, so that a port in use is reported before a long recovery.
            listener = await listen(env, config)
            listeners.callback(listener.close)
            is_default = sources is not None and sources.get("http_listen") == DEFAULT
            http_listener = await listen_http(env, config, is_optional=is_default)
            if http_listener is not None:
                listeners.callback(http_listener.close)
            failure: Exception | None = None
            async with trio.open_nursery() as nursery:
                broker = Broker(
                    env,
                    config,
                    directory,
                    listener=listener,
                    http_listener=http_listener,
                    nursery=nursery,
                    secret=secret,
                    sources=sources,
                )
                broker.master_source = master_source
                try:
                    await broker.start(inputs)
                    yield broker
                    await broker.stop()
                except Exception as error:  # noqa: BLE001  (raised again below)
                    # Raised outside of the nursery, so that the error does not arrive in an
                    # exception group.
                    failure = error
                nursery.cancel_scope.cancel()
            failure = failure or broker.failure
            if failure is not None:
                raise failure
    finally:
        directory.release()
