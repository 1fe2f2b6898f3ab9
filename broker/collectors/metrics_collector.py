"""Collector of all metrics of a broker, for pages and for requests over the wire."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, final

import trio

from tidelog.broker.collectors.broker_collector import BrokerCollector
from tidelog.broker.collectors.group_collector import GroupCollector
from tidelog.broker.collectors.object_rows import rows_of
from tidelog.broker.collectors.queue_collector import QueueCollector
from tidelog.broker.collectors.replica_walk import ReplicaWalk
from tidelog.broker.collectors.threshold_collector import ThresholdCollector
from tidelog.broker.hot.hot_traffic import HotTraffic
from tidelog.broker.metrics import catalog
from tidelog.broker.metrics.object_counts import ObjectCounts
from tidelog.broker.metrics.topic_totals import TopicTotals
from tidelog.coordinator.groups.pattern import TopicPattern
from tidelog.wire.metrics.metric import Family, Labels, Metric, Sample, family, table

_PREFIX: Final = "tidelog_"
_SAMPLES_AT_ONCE: Final = 1_000
"""Samples that are chosen by name before other tasks run."""
_OBJECTS: Final = ("topic", "queue", "group")
_TOPIC_COUNTERS: Final = (
    (catalog.TOPIC_RECEIVED_BYTES, "received_bytes"),
    (catalog.TOPIC_RECEIVED_RECORDS, "received_records"),
    (catalog.TOPIC_RECEIVED_BATCHES, "received_batches"),
    (catalog.TOPIC_SENT_BYTES, "sent_bytes"),
    (catalog.TOPIC_REFUSED_BATCHES, "refused_batches"),
)
"""Metrics and the attributes of `TopicTotals`."""


@final
@dataclass(frozen=True, slots=True)
class MetricSelection:
    """The metrics that a reader wants."""

    families: Sequence[str] = ()
    """Beginnings of names without `tidelog_`, such as `queue`; empty for all."""
    names: TopicPattern | None = None
    """Names of topics, queues and groups; `None` for all."""

    async def of(self, families: Iterable[Family]) -> list[Family]:
        """Return what is wanted of some families; other tasks run meanwhile."""
        found = [each for each in families if self._has(each.metric)]
        names = self.names
        if names is None:
            return found
        chosen: list[Family] = []
        count = 0
        for metric, samples in found:
            named: list[Sample] = []
            for sample in samples:
                count += 1
                if count % _SAMPLES_AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
                if _is_named(names, sample):
                    named.append(sample)
            chosen.append(Family(metric, named))
        return chosen

    def may_have(self, beginning: str) -> bool:
        """Return whether metrics whose names begin so, without `tidelog_`, may be wanted."""
        return not self.families or any(
            beginning.startswith(each) or each.startswith(beginning) for each in self.families
        )

    def _has(self, metric: Metric) -> bool:
        name = metric.name.removeprefix(_PREFIX)
        return not self.families or any(map(name.startswith, self.families))


def _is_named(names: TopicPattern, sample: Sample) -> bool:
    """Return whether a sample is of an object with one of the names, or of no object."""
    labels, _ = sample
    named = [
        value for name, value in zip(labels.names, labels.values, strict=True) if name in _OBJECTS
    ]
    return not named or any(map(names.matches, named))


EVERYTHING: Final = MetricSelection()


@final
class MetricsCollector:
    """Collects all metrics. Readers take turns, so that several cost no more than one."""

    def __init__(
        self,
        broker: BrokerCollector,
        replicas: ReplicaWalk,
        topics: ObjectCounts[TopicTotals],
        *,
        has_topic: Callable[[str], bool],
        queues: QueueCollector,
        groups: GroupCollector,
        thresholds: ThresholdCollector,
        hot: HotTraffic,
    ) -> None:
        """Collect from these; `has_topic` returns whether there is a topic with a name."""
        self._has_topic = has_topic
        self._thresholds = thresholds
        self._hot = hot
        self._broker = broker
        self._replicas = replicas
        self._topics = topics
        self._queues = queues
        self._groups = groups
        self._labels: dict[str, Labels] = {}
        self._turn = trio.Lock()

    async def collect(self, selection: MetricSelection = EVERYTHING) -> list[Family]:
        """Return the values of all metrics that are wanted, as of now."""
        # Groups need questions to leaders, and queues a look at many partitions. A slow leader
        # makes no other reader wait for its turn.
        groups = await self._groups.families() if selection.may_have("group") else []
        async with self._turn:
            await self._thresholds.refresh()
            await self._replicas.refresh()
            found = [
                *await self._broker.families(),
                *self._replicas.families(),
                *await self._of_topics(),
                family(
                    catalog.HOT_PARTITIONS,
                    [((topic,), count) for topic, count in self._hot.hot_counts().items()],
                ),
            ]
            if self._broker.is_controller:
                found += self._thresholds.families()
            found += groups
            if selection.may_have("queue"):
                totals = self._replicas.totals
                found += await self._queues.families(
                    totals.journals, written=totals.written, uncounted=totals.uncounted
                )
        return await selection.of(found)

    async def _of_topics(self) -> list[Family]:
        totals = self._replicas.totals
        for _ in self._topics.forget_idle(
            now=trio.current_time(),
            exists=self._has_topic,
            is_empty=lambda name: name not in totals.filled,
        ):
            await trio.lowlevel.checkpoint()
        self._labels, rows = await rows_of(self._topics, catalog.LOG_BYTES, self._labels)
        labels = list(self._labels.values())
        return [
            table(metric, labels, rows, value=attrgetter(name)) for metric, name in _TOPIC_COUNTERS
        ]
