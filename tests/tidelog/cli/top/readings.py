"""Readings of a cluster for tests of `tidelog top`."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from tests.wire.cluster_samples import DESCRIBE
from tidelog.cli.top.activity import Reading
from tidelog.client.admin.metrics import BrokerMetrics
from tidelog.wire.messages.cluster_admin import DescribeClusterReply, PartitionState
from tidelog.wire.messages.metrics import MetricFamily, MetricHistogram, MetricSample

Series = Mapping[tuple[()], float] | Mapping[tuple[str], float] | Mapping[tuple[str, str], float]
Values = Series | float

NODE = replace(
    DESCRIBE[1].nodes[0], status="alive", last_known_status="", is_drained=False, damaged_count=0
)
BOUNDS = [0.001, 0.01, 0.1]


def cluster_of(
    node_ids: Sequence[int] = (1,), *, partitions: Sequence[PartitionState] = ()
) -> DescribeClusterReply:
    """Return a healthy cluster, of which the first node is the controller."""
    return replace(
        DESCRIBE[1],
        nodes=[replace(NODE, node_id=each) for each in node_ids],
        controller_id=node_ids[0],
        metadata_age_ms=100,
        leaderless_count=0,
        unavailable_count=0,
        under_replicated_count=0,
        damaged_count=0,
        events=[],
        partitions=list(partitions),
    )


def broker(
    node_id: int = 1,
    *,
    time_s: float = 100.0,
    histograms: Mapping[str, list[int]] | None = None,
    **families: Values,
) -> BrokerMetrics:
    """Return the metrics of a broker, by names without `tidelog_`."""
    found: dict[str, MetricFamily] = {}
    for short, values in families.items():
        name = short if short.startswith("process_") else f"tidelog_{short}"
        series: Series = values if isinstance(values, Mapping) else {(): values}
        samples = [MetricSample(list(labels), value) for labels, value in series.items()]
        found[name] = MetricFamily(name, "gauge", ["label"], samples)
    for short, counts in (histograms or {}).items():
        name = f"tidelog_{short}"
        sample = MetricSample([], 0.0, MetricHistogram(BOUNDS, counts, 0.0))
        found[name] = MetricFamily(name, "histogram", [], [sample])
    return BrokerMetrics(node_id, found, time_s)


def reading(
    *brokers: BrokerMetrics, at_s: float = 0.0, cluster: DescribeClusterReply | None = None
) -> Reading:
    """Return a reading of some brokers."""
    node_ids = [each.node_id for each in brokers]
    return Reading(cluster or cluster_of(node_ids), brokers, at_s)
