"""Activity of a cluster: brokers, topics, queues and groups, by two readings of its metrics.

Pure: no clock, no I/O. Each broker counts what it leads, so a sum over brokers counts everything
once. A broker that does not answer is missing in the sums.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from tidelog.client.admin.metric_rates import LabelValues, MetricRates
from tidelog.client.admin.metrics import BrokerMetrics
from tidelog.wire.errors import UnsupportedVersionError
from tidelog.wire.messages.cluster_admin import DescribeClusterReply, NodeDescription

_P99: Final = 0.99
_OTHER: Final = "_other"
"""Name of all topics or queues without series of their own, together."""
_ANSWERING: Final = ("alive", "stopping")
_NO_ANSWER: Final = "no answer"
_NO_METRICS: Final = "no metrics"

FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "brokers": (
        *("process_start_time", "process_cpu", "process_resident", "loop_lag", "connections"),
        *("requests_total", "request_duration", "disk_free"),
    ),
    "topics": (
        *("process_start_time", "topic_received_bytes", "topic_received_records"),
        *("topic_sent_bytes", "log_bytes"),
    ),
    "queues": (
        *("process_start_time", "queue_ready", "queue_leased", "queue_delayed", "queue_oldest"),
        *("queue_sent", "queue_received", "queue_deleted", "queue_redelivered", "queue_empty"),
        "queue_partitions_unknown",
    ),
    "groups": ("group_lag", "group_members", "group_epoch"),
}
"""Families of metrics that a panel shows, as in `Admin.metrics`."""


@final
@dataclass(frozen=True, slots=True)
class Reading:
    """The state of a cluster at one moment."""

    cluster: DescribeClusterReply
    brokers: Sequence[BrokerMetrics]
    at_s: float
    """Seconds of the reader's clock."""


class BrokerActivity(NamedTuple):
    """What one broker does."""

    node_id: int
    state: str
    """Status of the node, `no answer`, or `no metrics` for an earlier version."""
    is_controller: bool
    leader_count: int
    requests_per_s: float | None
    request_p99_s: float | None
    loop_lag_p99_s: float | None
    cpu_ratio: float | None
    """CPU time by time; 1.0 is one core."""
    memory_bytes: float | None
    connection_count: float | None
    disk_free_bytes: float | None
    reason: str
    """Why the broker did not answer; empty if it did."""


class TopicActivity(NamedTuple):
    """What happens to one topic."""

    name: str
    received_records_per_s: float | None
    received_bytes_per_s: float | None
    sent_bytes_per_s: float | None
    """To consumers, not to followers."""
    size_bytes: float | None
    """All replicas together."""
    under_replicated_count: int
    """Partitions with replicas out of sync."""

    @property
    def traffic(self) -> float:
        """Bytes per second in and out."""
        return (self.received_bytes_per_s or 0.0) + (self.sent_bytes_per_s or 0.0)


class QueueActivity(NamedTuple):
    """What happens to one queue."""

    name: str
    ready: float
    leased: float
    delayed: float
    oldest_age_s: float
    sent_per_s: float | None
    received_per_s: float | None
    deleted_per_s: float | None
    redelivered_per_s: float | None
    empty_receives_per_s: float | None


class GroupActivity(NamedTuple):
    """What one consumer group does."""

    name: str
    lag_records: float | None
    lag_s: float | None
    """Age of the oldest record that the group has not committed."""
    member_count: float | None
    rebalances_per_s: float | None


@final
@dataclass(frozen=True, slots=True)
class Activity:
    """What a cluster does."""

    cluster: DescribeClusterReply
    alert_count: int | None
    """Alerts that fire; `None` if that is unknown."""
    interval_s: float | None
    """Seconds between the two readings; `None` after the first one."""
    brokers: Sequence[BrokerActivity]
    topics: Sequence[TopicActivity]
    queues: Sequence[QueueActivity]
    uncounted_count: int
    """Queue partitions that are missing, because their leaders have not counted them yet."""
    groups: Sequence[GroupActivity]


def activity_of(
    before: Reading | None, after: Reading, *, alert_count: int | None = None
) -> Activity:
    """Return the activity between two readings; without `before`, rates are unknown."""
    earlier = {} if before is None else {each.node_id: each for each in before.brokers}
    rates = {each.node_id: MetricRates(earlier.get(each.node_id), each) for each in after.brokers}
    metrics = {each.node_id: each for each in after.brokers}
    known = [rates[each.node_id] for each in after.brokers if each.error is None]
    interval_s = None if before is None else after.at_s - before.at_s
    return Activity(
        after.cluster,
        alert_count,
        interval_s,
        [
            _broker(
                node,
                metrics.get(node.node_id),
                rates.get(node.node_id, MetricRates(None, BrokerMetrics(node.node_id))),
                is_controller=node.node_id == after.cluster.controller_id,
            )
            for node in after.cluster.nodes
        ],
        _topics(known, after.cluster),
        _queues(known),
        int(_values(known, "tidelog_queue_partitions_unknown").get("", 0)),
        _groups(before, after, interval_s),
    )


def _broker(
    node: NodeDescription, metrics: BrokerMetrics | None, found: MetricRates, *, is_controller: bool
) -> BrokerActivity:
    # A broker that answers is not unknown, even if the contacted one has stale metadata.
    state, reason = node.last_known_status or node.status, ""
    if metrics is None:
        state, reason = _NO_ANSWER, f"node {node.node_id} joined the cluster a moment ago"
    elif metrics.error is not None:
        reason = str(metrics.error)
        if state in _ANSWERING:
            is_old = isinstance(metrics.error, UnsupportedVersionError)
            state = _NO_METRICS if is_old else _NO_ANSWER
    return BrokerActivity(
        node.node_id,
        state,
        is_controller,
        node.leader_count,
        requests_per_s=_total(found.rates("tidelog_requests_total")),
        request_p99_s=found.quantile("tidelog_request_duration_seconds", _P99),
        loop_lag_p99_s=found.quantile("tidelog_loop_lag_seconds", _P99),
        cpu_ratio=_total(found.rates("process_cpu_seconds_total")),
        memory_bytes=_total(found.values("process_resident_memory_bytes")),
        connection_count=_total(found.values("tidelog_connections")),
        disk_free_bytes=_total(found.values("tidelog_disk_free_bytes")),
        reason=reason,
    )


def _topics(brokers: Sequence[MetricRates], cluster: DescribeClusterReply) -> list[TopicActivity]:
    records = _rates(brokers, "tidelog_topic_received_records_total")
    received = _rates(brokers, "tidelog_topic_received_bytes_total")
    sent = _rates(brokers, "tidelog_topic_sent_bytes_total")
    sizes = _values(brokers, "tidelog_log_bytes")
    out_of_sync = Counter(
        each.topic
        for each in cluster.partitions
        if not set(each.replicas) <= set(each.in_sync_replicas)
    )
    names = dict.fromkeys([*_values(brokers, "tidelog_topic_received_bytes_total"), *sizes])
    return [
        TopicActivity(
            name,
            records.get(name),
            received.get(name),
            sent.get(name),
            sizes.get(name),
            out_of_sync[name],
        )
        for name in names
        if name != _OTHER or sizes.get(name) or received.get(name) or sent.get(name)
    ]


def _queues(brokers: Sequence[MetricRates]) -> list[QueueActivity]:
    ready = _values(brokers, "tidelog_queue_ready")
    leased = _values(brokers, "tidelog_queue_leased")
    delayed = _values(brokers, "tidelog_queue_delayed")
    ages = _values(brokers, "tidelog_queue_oldest_message_age_seconds", max)
    sent = _rates(brokers, "tidelog_queue_sent_total")
    received = _rates(brokers, "tidelog_queue_received_total")
    deleted = _rates(brokers, "tidelog_queue_deleted_total")
    redelivered = _rates(brokers, "tidelog_queue_redelivered_total")
    empty = _rates(brokers, "tidelog_queue_empty_receives_total")
    found = [
        QueueActivity(
            name,
            ready[name],
            leased.get(name, 0.0),
            delayed.get(name, 0.0),
            ages.get(name, 0.0),
            sent_per_s=sent.get(name),
            received_per_s=received.get(name),
            deleted_per_s=deleted.get(name),
            redelivered_per_s=redelivered.get(name),
            empty_receives_per_s=empty.get(name),
        )
        for name in ready
    ]
    return [each for each in found if each.name != _OTHER or any(each[1:])]


def _groups(
    before: Reading | None, after: Reading, interval_s: float | None
) -> list[GroupActivity]:
    lags = _by_object(after, "tidelog_group_lag_records")
    ages = _by_object(after, "tidelog_group_lag_seconds")
    members = _by_object(after, "tidelog_group_members")
    epochs = _by_object(after, "tidelog_group_epoch")
    earlier = {} if before is None else _by_object(before, "tidelog_group_epoch")
    rebalances = {
        # A group that was deleted and created again begins at a lower epoch.
        labels[0]: max(0.0, epoch - earlier[labels]) / interval_s
        for labels, epoch in epochs.items()
        if interval_s and labels in earlier
    }
    records, seconds = _merged([lags], sum), _merged([ages], max)
    counts = _merged([members], max)
    return [
        GroupActivity(
            name, records.get(name), seconds.get(name), counts.get(name), rebalances.get(name)
        )
        for name in dict.fromkeys([*counts, *records, *seconds])
    ]


def _by_object(reading: Reading, name: str) -> dict[LabelValues, float]:
    """Return a metric of the controller; for a moment, there may be two of them."""
    found: dict[LabelValues, float] = {}
    for broker in reading.brokers:
        for labels, value in MetricRates(None, broker).values(name).items():
            found[labels] = max(value, found.get(labels, value))
    return found


def _total(series: Mapping[LabelValues, float] | None) -> float | None:
    return sum(series.values()) if series else None


def _values(
    brokers: Iterable[MetricRates],
    name: str,
    combine: Callable[[Iterable[float]], float] = sum,
) -> dict[str, float]:
    """Return the values of a metric by the name of its object, all brokers together."""
    return _merged([broker.values(name) for broker in brokers], combine)


def _rates(brokers: Iterable[MetricRates], name: str) -> dict[str, float]:
    """Return the rates of a counter by the name of its object, as far as they are known."""
    return _merged([broker.rates(name) or {} for broker in brokers], sum)


def _merged(
    series: Iterable[Mapping[LabelValues, float]], combine: Callable[[Iterable[float]], float]
) -> dict[str, float]:
    """Return values by their first label."""
    found: dict[str, list[float]] = {}
    for each in series:
        for labels, value in each.items():
            found.setdefault(labels[0] if labels else "", []).append(value)
    return {name: combine(values) for name, values in found.items()}
