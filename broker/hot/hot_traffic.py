"""Hot partitions and keys of one broker.

Shell: owns a task that measures the traffic of partitions and reports hot ones.
"""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final, final

import trio

from tidelog.broker.hot.hot_partitions import HotPartitions, burdens_broker, is_skewed
from tidelog.broker.hot.key_sampler import KeySampler
from tidelog.broker.hot.key_shares import KeyShare
from tidelog.broker.hot.traffic_rate import TrafficRate
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.coordinator.node import ClusterNode
from tidelog.wire.batch.record_batch import BatchHeader
from tidelog.wire.env.env import BytesLike
from tidelog.wire.messages.hot_keys import (
    HotKey,
    HotKeysReply,
    HotKeysRequest,
    PartitionHotKeys,
)
from tidelog.wire.protocol import api

_INTERVAL_S: Final = 10.0
_PEER_TIMEOUT_S: Final = 2.0
_PARTITIONS_AT_ONCE: Final = 500
"""Partitions that are measured before other tasks run."""

Sample = Callable[[Partition, BatchHeader, BytesLike], None]
"""Takes the keys of an appended batch into account, or leaves them out."""


def no_sample(partition: Partition, header: BatchHeader, batch: BytesLike) -> None:
    """Leave all keys out."""


@final
class HotTraffic:
    """Rates of partitions, the hot ones among them, and the shares of their keys."""

    def __init__(
        self, cluster: ClusterNode, partitions: ReplicaManager, *, is_sampling: bool
    ) -> None:
        """Watch `partitions`; `run` must run in a task."""
        self._cluster = cluster
        self._partitions = partitions
        self._rates: dict[Partition, TrafficRate] = {}
        self._measured_at = trio.current_time()
        self._hot: HotPartitions[Partition] = HotPartitions()
        # Only a fair choice: it needs no entropy, and draws for every batch must be cheap.
        random = Random(cluster.node_id)  # noqa: S311
        self.sampler: KeySampler[Partition] = KeySampler(random.random, trio.current_time)
        self._is_sampling = is_sampling

    def hot_counts(self) -> Counter[str]:
        """Return the number of hot partitions that this broker leads, by topic."""
        return Counter(partition.topic for partition in self._hot.hot)

    @property
    def sample(self) -> Sample:
        """Function for the keys of appended batches."""
        return self.sampler.offer if self._is_sampling else no_sample

    def describe(self, partition: Partition, limit: int) -> PartitionHotKeys:
        """Return the recent traffic of a partition, and up to `limit` of its hottest keys."""
        rate = self._rate(partition, trio.current_time())
        shares = self.sampler.shares(partition) if self._is_sampling else None
        return PartitionHotKeys(
            partition.number,
            rate.received_bytes_per_s,
            rate.received_records_per_s,
            rate.sent_bytes_per_s,
            is_hot=partition in self._hot.hot,
            is_sampled=self._is_sampling,
            keyless_share=0.0 if shares is None else shares.keyless_share,
            keys=[] if shares is None else [_hot_key(each) for each in shares.top(limit)],
        )

    async def run(self) -> None:
        """Measure partitions and report hot ones, until cancelled."""
        while True:
            await trio.sleep(_INTERVAL_S)
            self.sampler.refresh()
            total = await self._measure()
            exceeding: dict[Partition, None] = {}
            for partition, rate in list(self._rates.items()):
                bytes_per_s = rate.bytes_per_s
                if not burdens_broker(bytes_per_s, total) or partition.leader is None:
                    continue
                if is_skewed(bytes_per_s, await self._others(partition)):
                    exceeding[partition] = None
            self._decide(exceeding, total)

    async def _measure(self) -> float:
        """Update all rates; return the bytes per second of this broker."""
        total = 0.0
        rates: dict[Partition, TrafficRate] = {}
        for count, partition in enumerate(self._partitions.all()):
            if count % _PARTITIONS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            traffic = partition.traffic
            has_traffic = traffic.received_batches or traffic.sent_replies
            if has_traffic and not (partition.queue_name or partition.is_staging):
                rates[partition] = self._rate(partition, trio.current_time())
                total += rates[partition].bytes_per_s
        self._rates = rates
        self.sampler.keep(rates)  # A removed replica must not stay in memory.
        self._measured_at = trio.current_time()
        return total

    def _rate(self, partition: Partition, now: float) -> TrafficRate:
        """Return the rate of a partition, up to now."""
        rate = self._rates.get(partition)
        if rate is None:
            rate = self._rates[partition] = TrafficRate(self._measured_at)
        rate.update(partition.traffic, now)
        return rate

    async def _others(self, partition: Partition) -> list[float]:
        """Return the bytes per second of the topic's other partitions, as far as they are known.

        A broker leads only some of them, so it asks the leaders of the others. It does so for the
        few partitions that burden it.
        """
        topic_id, number = partition.key
        others: list[float] = []
        remote: dict[int, list[int]] = {}
        for place, known in enumerate(self._cluster.metadata.state.partitions(topic_id)):
            if known.leader is None or place == number:
                continue
            if known.leader != self._cluster.node_id:
                remote.setdefault(known.leader, []).append(place)
                continue
            if (topic_id, place) in self._partitions.idle:
                others.append(0.0)
                continue
            local = self._partitions.replica(topic_id, place)
            if local is not None:
                others.append(self._rate(local, trio.current_time()).bytes_per_s)

        def take(node_id: int, reply: HotKeysReply) -> None:
            del node_id
            others.extend(each.bytes_per_s for each in reply.partitions if each.error is None)

        await self._cluster.peers.ask_each(
            remote,
            api.HOT_KEYS,
            lambda numbers: HotKeysRequest(topic_id, numbers, 0),
            take=take,
            timeout_s=_PEER_TIMEOUT_S,
        )
        return others

    def _decide(self, exceeding: dict[Partition, None], total: float) -> None:
        for partition in list(self._hot.hot):
            is_led = self._partitions.is_open(partition) and partition.leader
            if not is_led and self._hot.remove(partition):
                partition.probe("partition_cooled", reason="this broker leads it no more")
        changes = self._hot.update(exceeding, trio.current_time())
        for partition in changes.hot:
            rate = self._rates[partition]
            partition.probe(
                "partition_hot",
                severity="warning",
                received_bytes_per_s=round(rate.received_bytes_per_s),
                sent_bytes_per_s=round(rate.sent_bytes_per_s),
                broker_share=round(rate.bytes_per_s / total, 3),
            )
        for partition in changes.cooled:
            partition.probe("partition_cooled", reason="its traffic is usual again")


def _hot_key(found: KeyShare) -> HotKey:
    key = found.key
    begin, length = (key, len(key)) if isinstance(key, bytes) else (key.begin, key.length)
    return HotKey(begin, length, found.share, found.error)
