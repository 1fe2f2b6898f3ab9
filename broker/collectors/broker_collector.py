"""Collector of the metrics of the broker itself: process, requests, cluster, disk."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, final

import trio

from tidelog.broker.audit.buffer import AuditBuffer
from tidelog.broker.collectors.slow_read import SlowRead
from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.broker.key_manager import KeyManager
from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.metrics import catalog
from tidelog.broker.metrics.event_counts import CountingProbe
from tidelog.broker.metrics.request_counts import RequestCounts
from tidelog.broker.network.acceptor import Acceptor
from tidelog.broker.requests.purgatory import Purgatory
from tidelog.coordinator.metadata.broker_delta import BrokerDelta
from tidelog.coordinator.metadata.cluster_events import ClusterEventKind
from tidelog.coordinator.metadata.health import Health, count_topic, new_health
from tidelog.coordinator.node import ClusterNode
from tidelog.logstore.disk.disk import Disk
from tidelog.wire.env.env import Env, ProcessUsage
from tidelog.wire.metrics.metric import Family, Histogram, Value, family, single
from tidelog.wire.protocol.api import ApiKey

_TICK_S: Final = 0.1
_PARTITIONS_PER_S: Final = 5_000
"""Partitions of the cluster for each second of the time until they are counted again."""
_TOPICS_AT_ONCE: Final = 100
"""Topics of the cluster that are counted before other tasks run."""
_WAIT_S: Final = 1.0
"""Maximum wait in seconds for a disk, or for a free thread."""
_ELECTIONS: Final = ("planned", "failover", "recovery", "unclean")
_ISR_CHANGES: Final = ("shrink", "expand")


@final
class LoopLag:
    """Measures how late the event loop runs a timer."""

    def __init__(self) -> None:
        """Start without measurements; `run` must run in a task."""
        self.lags = Histogram(catalog.LOOP_LAG)
        """Seconds."""

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            due = trio.current_time() + _TICK_S
            await trio.sleep_until(due)
            self.lags.observe(max(0.0, trio.current_time() - due))


@final
@dataclass(frozen=True, slots=True)
class BrokerParts:
    """The parts of a broker that have counts."""

    env: Env
    disk: Disk
    version: str
    events: CountingProbe
    requests: Mapping[int, RequestCounts]
    acceptor: Acceptor
    purgatory: Purgatory
    group_commit: GroupCommit
    loop_lag: LoopLag
    denials: Mapping[tuple[str, str], int]
    """Denials of access by kind and action."""
    keys: KeyManager
    """The keys of encryption at rest."""
    audit: AuditBuffer | None = None
    """`None` while `audit = off`."""


@final
class BrokerCollector:
    """Reads the metrics of one broker."""

    def __init__(
        self,
        parts: BrokerParts,
        config: Callable[[], BrokerConfig],
        cluster: ClusterNode,
        *,
        nursery: trio.Nursery,
    ) -> None:
        """Read `parts`, the settings in force, and what this node knows of the cluster.

        Reads that block run in `nursery`.
        """
        self._parts = parts
        self._disk = SlowRead(
            nursery,
            self._read_disk,
            name="reading disk space",
            value=None,
            wait_s=_WAIT_S,
        )
        self._usage = SlowRead(
            nursery,
            # With many open files, this takes some milliseconds.
            lambda: parts.env.run_in_thread(parts.env.process_usage),
            name="reading the usage of the process",
            value=ProcessUsage(),
            wait_s=_WAIT_S,
        )
        self._config = config
        self._cluster = cluster
        self._health = Health()
        self._counted_at = float("-inf")
        self._changes: int = 0
        """Changes of the metadata so far."""
        self._counted_changes: int = -1
        """Those that the health takes into account."""
        cluster.metadata.subscribe(self._on_metadata, hears_transactions=False)

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the active controller, which reports what belongs to no leader."""
        return self._cluster.raft.is_active_leader

    async def _read_disk(self) -> tuple[int, int] | None:
        disk = self._parts.disk
        return await self._parts.env.run_in_thread(lambda: (disk.free_bytes(), disk.total_bytes()))

    def _of_disk(self) -> list[Family]:
        if self._disk.value is None:
            return []  # It has not answered yet.
        free_bytes, total_bytes = self._disk.value
        return [single(catalog.DISK_FREE, free_bytes), single(catalog.DISK_SIZE, total_bytes)]

    def _of_certificate(self) -> list[Family]:
        secured = self._parts.env.secure_network
        if secured is None:
            return []
        return [single(catalog.CERTIFICATE_EXPIRY, secured.certificate.expires_at_ms / 1000)]

    async def families(self) -> list[Family]:
        """Return the metrics of the broker."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._disk.refresh)
            nursery.start_soon(self._usage.refresh)
        return [
            *self._process(self._usage.value),
            *self._requests(),
            *await self._cluster_state(),
            *self._of_disk(),
            *self._of_audit(),
            *self._of_certificate(),
            single(catalog.LOCKED_TOPICS, len(self._parts.keys.locked)),
            single(catalog.LOCKED_PARTITIONS, self._parts.keys.locked_partition_count),
            single(catalog.DISK_RESERVE, self._config().min_free_disk_bytes),
            single(catalog.DAMAGE_FOUND, self._parts.events.damage),
            single(catalog.DAMAGE_REPAIRED, self._parts.events.count("replica_repaired")),
        ]

    def _process(self, usage: ProcessUsage) -> list[Family]:
        parts = self._parts
        identity = (parts.version, str(self._cluster.node_id), self._cluster.raft.cluster_id)
        return [
            family(catalog.BUILD_INFO, [(identity, 1)]),
            single(catalog.PROCESS_CPU, usage.cpu_s),
            single(catalog.PROCESS_MEMORY, usage.resident_bytes),
            single(catalog.PROCESS_FILES, usage.open_files),
            single(catalog.PROCESS_MAX_FILES, usage.max_open_files),
            single(catalog.PROCESS_START, usage.started_at_s),
            single(catalog.LOOP_LAG, parts.loop_lag.lags.value()),
            family(catalog.EVENTS, sorted(parts.events.events.items())),
            family(catalog.ACCESS_DENIALS, sorted(parts.denials.items())),
        ]

    def _requests(self) -> list[Family]:
        parts = self._parts
        answers: list[tuple[tuple[str, ...], Value]] = []
        durations: list[tuple[tuple[str, ...], Value]] = []
        for key, counts in parts.requests.items():
            api = ApiKey(key).name
            if counts.ok or counts.errors:
                answers.append(((api, "OK"), counts.ok))
                answers += [((api, code), count) for code, count in counts.errors.items()]
                durations.append(((api,), counts.durations.value()))
        of_nodes = sum(each.node_id is not None for each in parts.acceptor.connections)
        of_clients = len(parts.acceptor.connections) - of_nodes
        return [
            family(catalog.REQUESTS, answers),
            family(catalog.REQUEST_DURATION, durations),
            family(catalog.THROTTLED, parts.acceptor.quotas.throttled_s()),
            single(catalog.COMMIT_WAIT, parts.purgatory.commit_waits.value()),
            single(catalog.SYNC_DURATION, parts.group_commit.syncs.value()),
            family(catalog.CONNECTIONS, [(("client",), of_clients), (("node",), of_nodes)]),
            single(catalog.WAITING_REQUESTS, len(parts.purgatory)),
            single(catalog.REQUEST_MEMORY, parts.acceptor.memory.used_bytes),
            single(catalog.REQUEST_MEMORY_LIMIT, parts.acceptor.memory.limit_bytes),
        ]

    def _of_audit(self) -> list[Family]:
        buffer = self._parts.audit
        if buffer is None:
            return []
        outcomes = [(("written",), buffer.written), (("lost",), buffer.lost)]
        return [
            family(catalog.AUDIT_RECORDS, outcomes),
            single(catalog.AUDIT_BUFFER, buffer.used_bytes),
        ]

    async def _cluster_state(self) -> list[Family]:
        events, is_controller = self._parts.events, self.is_controller
        age_ms = self._cluster.metadata_age_ms()
        found = [
            single(catalog.CONTROLLER, int(is_controller)),
            single(catalog.METADATA_AGE, float("inf") if age_ms is None else age_ms / 1000),
            family(catalog.ELECTIONS, [((kind,), events.elections[kind]) for kind in _ELECTIONS]),
            family(
                catalog.ISR_CHANGES, [((kind,), events.isr_changes[kind]) for kind in _ISR_CHANGES]
            ),
        ]
        if not is_controller:
            return found
        return [*found, *await self._of_controller()]

    def _on_metadata(self, delta: BrokerDelta) -> None:
        del delta
        self._changes += 1

    async def _counted_health(self) -> Health:
        state = self._cluster.metadata.state
        health = new_health(state)
        for number, topic in enumerate(state.catalog.topics):
            if number % _TOPICS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            for _ in count_topic(health, state, topic):
                await trio.lowlevel.checkpoint()
        return health

    async def _of_controller(self) -> list[Family]:
        state = self._cluster.metadata.state
        health = self._health
        now = trio.current_time()
        is_old = now - self._counted_at >= self._health.partition_count / _PARTITIONS_PER_S
        if self._changes != self._counted_changes and is_old:
            changes = self._changes
            self._counted_at = now
            health = self._health = await self._counted_health()
            self._counted_changes = changes
        partitions = {
            "leaderless": health.leaderless_count,
            "under_min_isr": health.unavailable_count,
            "under_replicated": health.under_replicated_count,
            "below_default_replication": health.below_default_count,
            "reassigning": health.reassigning_count,
            "not_preferred": health.not_preferred_count,
        }
        fenced = sum(broker.is_fenced for broker in state.brokers.values())
        brokers = {
            "alive": len(state.brokers) - fenced,
            "fenced": fenced,
            "drained": len(state.drained_node_ids),
        }
        transactions = state.transactions
        begun_ms, now_ms = transactions.oldest_begun_ms(), self._parts.env.clock.now_ms()
        age_s = 0.0 if begun_ms is None else max(0, now_ms - begun_ms) / 1000
        events = Counter(each.kind for each in state.events.unacknowledged)
        states = {
            "open": transactions.begun_count,
            "committing": transactions.pending_count,
            "known": len(transactions.names),
        }
        return [
            family(catalog.CLUSTER_PARTITIONS, [((at,), n) for at, n in partitions.items()]),
            family(catalog.CLUSTER_EVENTS, [((at,), events[at]) for at in ClusterEventKind]),
            family(catalog.BROKERS, [((at,), n) for at, n in brokers.items()]),
            family(catalog.TRANSACTIONS, [((at,), n) for at, n in states.items()]),
            single(catalog.OLDEST_TRANSACTION, age_s),
        ]
