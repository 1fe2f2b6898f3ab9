"""The alerts of a cluster at one moment: names, conditions, and the next step for each.

Pure: no clock, no I/O. `docs/alerts.md` has a heading for each name, and the rules for Prometheus
have the same names. Conditions of operators come from the description of the cluster; owners of
queues and groups set theirs (`wire.config.queue_config`, `wire.config.group_config`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, final

from tidelog.client.admin.cluster_health import cluster_health
from tidelog.client.admin.queue_counts import DescribedQueue, MessageCounts
from tidelog.wire.config.group_config import GroupSettings, group_settings
from tidelog.wire.config.queue_config import ALERT_SETTINGS, QueueConfig, queue_config
from tidelog.wire.errors import InvalidConfigError
from tidelog.wire.messages.cluster_admin import DescribeClusterReply, EventDescription
from tidelog.wire.messages.groups import DescribedGroup
from tidelog.wire.messages.transactions import NAMES_MAX, NAMES_WARNED

_ELECTION_EVENTS: Final = frozenset({"data_loss_accepted", "elected_without_replicas"})
_EVENTS: Final = "read and acknowledge them: tidelog cluster events"
_FREE_PERCENT: Final = 5
"""Part of a disk that should be free beyond `min_free_disk_bytes`."""
_ROOM: Final = "lower the retention of large topics, or enlarge the disk: tidelog topic usage"
_PARTITIONS: Final = "see the reasons and remedies: tidelog cluster status --partitions"


_WHOLE: Final = {"queue": "queues", "group": "groups"}


@final
class AlertSeverity(StrEnum):
    """How urgent an alert is."""

    WARNING = "warning"
    """All partitions can be written and read."""
    CRITICAL = "critical"
    """Partitions cannot be written or read, or committed records may be lost."""


SEVERITIES: Final = {
    "NoController": AlertSeverity.CRITICAL,
    "OfflinePartition": AlertSeverity.CRITICAL,
    "UnderMinIsr": AlertSeverity.CRITICAL,
    "UncleanElection": AlertSeverity.CRITICAL,
    "RecordsLost": AlertSeverity.CRITICAL,
    "DiskReadOnly": AlertSeverity.CRITICAL,
    "UnderReplicated": AlertSeverity.WARNING,
    "BrokerDown": AlertSeverity.WARNING,
    "DamageFound": AlertSeverity.WARNING,
    "DiskAlmostFull": AlertSeverity.WARNING,
    "TransactionNamesMany": AlertSeverity.WARNING,
    "QueueTooOld": AlertSeverity.WARNING,
    "QueueTooDeep": AlertSeverity.WARNING,
    "QueueDeadLetters": AlertSeverity.WARNING,
    "GroupLag": AlertSeverity.WARNING,
}
"""The severity of each alert by its name, in the order of reports."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One condition that holds now."""

    name: str
    subject: str
    """What it is about: `cluster`, `node 2`, `queue payments` or `group billing`."""
    owner: str | None = None
    """Owner of the queue or group; `None` without one, and for operators."""
    reason: str
    """What `value` measures, or why the alert fires, in one line."""
    value: int | None = None
    """Measured value; `None` if the condition has none."""
    threshold: int | None = None
    """The alert fires above it; `None` without one."""
    unit: str = ""
    """Unit of both: `ms`, or the counted things, such as `messages`."""
    since_ms: int | None = None
    """Unix milliseconds since when the condition holds; `None` if unknown."""
    next_step: str
    """One line: what to do next."""

    @property
    def severity(self) -> AlertSeverity:
        """How urgent the alert is."""
        return SEVERITIES[self.name]

    @property
    def docs(self) -> str:
        """Page and heading that explain the alert."""
        return f"docs/alerts.md#{self.name.lower()}"

    @property
    def key(self) -> tuple[str, str, str]:
        """Identity of the condition, in all reports."""
        return self.name, self.subject, self.unit


@final
@dataclass(frozen=True, slots=True)
class AlertReport:
    """The alerts of a cluster at one moment."""

    at_ms: int
    """Unix milliseconds, by the clock of the client."""
    alerts: tuple[Alert, ...]
    """The most urgent first."""
    unknown: tuple[str, ...] = ()
    """Subjects whose state is unknown, such as a queue without a leader; `cluster`, `queues` and
    `groups` stand for all of them."""

    @property
    def severity(self) -> AlertSeverity | None:
        """Severity of the most urgent alert; an unknown state is a warning; `None` without any."""
        severities = {each.severity for each in self.alerts}
        if AlertSeverity.CRITICAL in severities:
            return AlertSeverity.CRITICAL
        return AlertSeverity.WARNING if severities or self.unknown else None

    def is_unknown(self, subject: str) -> bool:
        """Return whether the state of the subject of an alert is unknown."""
        whole = _WHOLE.get(subject.partition(" ")[0], "cluster")
        return subject in self.unknown or whole in self.unknown


class AlertChanges(NamedTuple):
    """The difference between two reports."""

    fired: tuple[Alert, ...]
    cleared: tuple[Alert, ...]
    active: AlertReport
    """The later report, with earlier alerts whose subjects are unknown now."""


class GroupToCheck(NamedTuple):
    """A group with settings, and its progress."""

    overrides: Mapping[str, str]
    description: DescribedGroup


class DiskToCheck(NamedTuple):
    """The disk of a broker."""

    node_id: int
    free_bytes: int
    size_bytes: int
    reserve_bytes: int
    """The setting `min_free_disk_bytes`."""
    full_log_count: int
    """Logs that are read-only because the disk has no room."""


def report(
    cluster: DescribeClusterReply | None,
    queues: Iterable[DescribedQueue],
    groups: Iterable[GroupToCheck],
    *,
    disks: Iterable[DiskToCheck] = (),
    name_count: int = 0,
    depths: Mapping[str, MessageCounts | None],
    unknown: Iterable[str] = (),
    now_ms: int,
) -> AlertReport:
    """Return the alerts of one moment.

    Args:
        cluster: The description of the cluster; `None` leaves out the alerts of operators.
        queues: Queues with their counts; those without thresholds have no alerts.
        groups: Groups with settings.
        disks: Disks of the brokers that answered.
        name_count: Names of transactions that the cluster remembers.
        depths: Counts of dead-letter queues by name; `None` if unknown.
        unknown: Subjects whose state could not be read.
        now_ms: Unix milliseconds.
    """
    found = [] if cluster is None else _of_cluster(cluster, now_ms)
    for disk in disks:
        found += _of_disk(disk)
    found += _of_names(name_count)
    blind = set(unknown)
    for queue in queues:
        config = alert_config(queue)
        if config is not None:
            alerts = _of_queue(queue, config, depths, now_ms=now_ms)
            found += alerts or ()
            if alerts is None:
                blind.add(f"queue {queue.name}")
    for group in groups:
        alerts = _of_group(group, now_ms)
        found += alerts or ()
        if alerts is None:
            blind.add(f"group {group.description.group_id}")
    order = {name: place for place, name in enumerate(SEVERITIES)}
    found.sort(key=lambda each: (order[each.name], each.subject, each.unit))
    return AlertReport(now_ms, tuple(found), tuple(sorted(blind)))


def changes(before: AlertReport | None, after: AlertReport) -> AlertChanges:
    """Return the alerts that fired and cleared between two reports.

    An alert whose subject is unknown now stays: it neither fires again nor clears.
    """
    earlier = {} if before is None else {each.key: each for each in before.alerts}
    now = {each.key: each for each in after.alerts}
    gone = [each for key, each in earlier.items() if key not in now]
    kept = tuple(each for each in gone if after.is_unknown(each.subject))
    return AlertChanges(
        tuple(each for key, each in now.items() if key not in earlier),
        tuple(each for each in gone if each not in kept),
        AlertReport(after.at_ms, (*after.alerts, *kept), after.unknown),
    )


def alert_config(queue: DescribedQueue) -> QueueConfig | None:
    """Return owner and thresholds of a queue; `None` if it has no threshold."""
    config = queue.config
    texts: dict[str, str] = {name: config[name] for name in ALERT_SETTINGS if name in config}
    try:
        found = queue_config(texts, is_fifo=False)
    except InvalidConfigError:  # a value of a newer version
        return None
    thresholds = (found.alert_age_ms, found.alert_depth, found.alert_dead_letters)
    return None if thresholds == (None, None, None) else found


def _of_cluster(cluster: DescribeClusterReply, now_ms: int) -> list[Alert]:
    """Return the alerts of operators; stale metadata tell only that there is no controller."""
    health = cluster_health(cluster)
    if health.is_stale or cluster.controller_id is None:
        age_ms = cluster.metadata_age_ms
        alert = Alert(
            name="NoController",
            subject="cluster",
            reason=health.reason if health.is_stale else f"node {cluster.node_id} knows none",
            value=age_ms,
            unit="" if age_ms is None else "ms",
            since_ms=None if age_ms is None else now_ms - age_ms,
            next_step=health.next_step,
        )
        if health.is_stale:
            return [alert]
        return [alert, *_of_partitions(cluster), *_of_nodes(cluster), *_of_events(cluster)]
    return [*_of_partitions(cluster), *_of_nodes(cluster), *_of_events(cluster)]


def _of_partitions(cluster: DescribeClusterReply) -> Iterable[Alert]:
    why = {
        "OfflinePartition": (
            cluster.leaderless_count,
            cluster.leaderless[0].reason if cluster.leaderless else "partitions have no leader",
        ),
        "UnderMinIsr": (
            cluster.unavailable_count,
            "partitions have fewer replicas in sync than min_insync_replicas",
        ),
        "UnderReplicated": (cluster.under_replicated_count, "partitions have replicas out of sync"),
    }
    for name, (count, reason) in why.items():
        if count:
            yield Alert(
                name=name,
                subject="cluster",
                reason=reason,
                value=count,
                threshold=0,
                unit="partitions",
                next_step=_PARTITIONS,
            )


def _of_nodes(cluster: DescribeClusterReply) -> Iterable[Alert]:
    for node in cluster.nodes:
        is_needed = node.role == "voter" or node.replica_count > 0
        if node.status in {"fenced", "unknown"} and is_needed:
            yield Alert(
                name="BrokerDown",
                subject=f"node {node.node_id}",
                reason=f"its status is {node.status}",
                next_step=f"start node {node.node_id}, or wait until it is alive",
            )
        if node.damaged_count:
            yield Alert(
                name="DamageFound",
                subject=f"node {node.node_id}",
                reason="replicas have damage that is not repaired",
                value=node.damaged_count,
                threshold=0,
                unit="replicas",
                next_step=_PARTITIONS,
            )


def _of_disk(disk: DiskToCheck) -> Iterable[Alert]:
    limit = disk.reserve_bytes + disk.size_bytes * _FREE_PERCENT // 100
    if disk.full_log_count:
        yield Alert(
            name="DiskReadOnly",
            subject=f"node {disk.node_id}",
            reason="logs are read-only because the disk has no room",
            value=disk.full_log_count,
            threshold=0,
            unit="logs",
            next_step=_ROOM,
        )
    elif disk.free_bytes < limit:
        yield Alert(
            name="DiskAlmostFull",
            subject=f"node {disk.node_id}",
            reason="free bytes of the disk are below the threshold",
            value=disk.free_bytes,
            threshold=limit,
            unit="bytes",
            next_step=_ROOM,
        )


def _of_names(count: int) -> Iterable[Alert]:
    if count > NAMES_WARNED:
        yield Alert(
            name="TransactionNamesMany",
            subject="cluster",
            reason=f"names of transactions are remembered; {NAMES_MAX} are the limit",
            value=count,
            threshold=NAMES_WARNED,
            unit="names",
            next_step="let programs use names again, forget old ones: tidelog transaction list",
        )


def _of_events(cluster: DescribeClusterReply) -> Iterable[Alert]:
    by_name: dict[str, list[EventDescription]] = {}
    for event in cluster.events:
        name = "UncleanElection" if event.kind in _ELECTION_EVENTS else "RecordsLost"
        by_name.setdefault(name, []).append(event)
    for name, events in by_name.items():
        yield Alert(
            name=name,
            subject="cluster",
            reason=events[0].detail,
            value=len(events),
            threshold=0,
            unit="events",
            since_ms=min(each.at_ms for each in events),
            next_step=_EVENTS,
        )


def _of_queue(
    queue: DescribedQueue,
    config: QueueConfig,
    depths: Mapping[str, MessageCounts | None],
    *,
    now_ms: int,
) -> list[Alert] | None:
    """Return the alerts of a queue; `None` if its state is unknown."""
    counts = queue.counts
    if counts is None:
        return None
    subject, name = f"queue {queue.name}", queue.name
    found: list[Alert] = []
    age_ms, age_limit_ms = counts.oldest_age_ms, config.alert_age_ms
    if age_limit_ms is not None and age_ms is not None and age_ms > age_limit_ms:
        found.append(
            Alert(
                name="QueueTooOld",
                subject=subject,
                owner=config.owner,
                reason="age of the oldest message",
                value=age_ms,
                threshold=age_limit_ms,
                unit="ms",
                since_ms=now_ms - (age_ms - age_limit_ms),
                next_step=f"check the consumers of the queue: tidelog queue in-flight {name}",
            )
        )
    if config.alert_depth is not None and counts.visible > config.alert_depth:
        found.append(
            Alert(
                name="QueueTooDeep",
                subject=subject,
                owner=config.owner,
                reason="visible messages",
                value=counts.visible,
                threshold=config.alert_depth,
                unit="messages",
                next_step=f"add consumers, or check them: tidelog queue in-flight {name}",
            )
        )
    if config.alert_dead_letters is not None:
        dead = _dead_letters(queue, counts, depths)
        if dead is None:
            return None
        if dead > config.alert_dead_letters:
            found.append(
                Alert(
                    name="QueueDeadLetters",
                    subject=subject,
                    owner=config.owner,
                    reason="dead letters",
                    value=dead,
                    threshold=config.alert_dead_letters,
                    unit="dead letters",
                    next_step=f"see their reasons: tidelog queue dead-letters {name}",
                )
            )
    return found


def dead_letter_queue(queue: DescribedQueue) -> str | None:
    """Return the name of the dead-letter queue of a queue; `None` without one."""
    name = queue.config.get("dead_letter_queue", "none")
    return None if name.strip().lower() == "none" else name.strip()


def _dead_letters(
    queue: DescribedQueue, counts: MessageCounts, depths: Mapping[str, MessageCounts | None]
) -> int | None:
    """Return the dead letters that are not moved, and all messages of the dead-letter queue."""
    target = dead_letter_queue(queue)
    if target is None:
        return counts.dead
    moved = depths.get(target)
    if moved is None:
        return None
    return counts.dead + moved.visible + moved.in_flight + moved.delayed


def _of_group(group: GroupToCheck, now_ms: int) -> list[Alert] | None:
    """Return the alerts of a group; `None` if its lag is unknown."""
    described = group.description
    try:
        settings = group_settings(group.overrides)
    except InvalidConfigError:  # a setting of a newer version
        return []
    if settings.alert_lag_ms is None and settings.alert_lag_records is None:
        return []
    found = list(_of_lag(described, settings, now_ms))
    # A partition with a commit and without a lag: its leader did not answer.
    committed = (each for each in described.partitions if each.offset is not None)
    is_known = all(each.lag_records is not None for each in committed)
    return found if found or is_known else None


def _of_lag(group: DescribedGroup, settings: GroupSettings, now_ms: int) -> Iterable[Alert]:
    times: Sequence[int] = [p.lag_ms for p in group.partitions if p.lag_ms is not None]
    counts: Sequence[int] = [p.lag_records for p in group.partitions if p.lag_records is not None]
    lag_ms, lag_records = max(times, default=0), sum(counts)
    subject = f"group {group.group_id}"
    step = f"check the members of the group: tidelog group describe {group.group_id}"
    if settings.alert_lag_ms is not None and lag_ms > settings.alert_lag_ms:
        yield Alert(
            name="GroupLag",
            subject=subject,
            owner=settings.owner,
            reason="lag in time of the worst partition",
            value=lag_ms,
            threshold=settings.alert_lag_ms,
            unit="ms",
            since_ms=now_ms - (lag_ms - settings.alert_lag_ms),
            next_step=step,
        )
    if settings.alert_lag_records is not None and lag_records > settings.alert_lag_records:
        yield Alert(
            name="GroupLag",
            subject=subject,
            owner=settings.owner,
            reason="lag of all partitions",
            value=lag_records,
            threshold=settings.alert_lag_records,
            unit="records",
            next_step=step,
        )
