"""Collector of the metrics of queues.

Shell: checkpoints, and loads partitions that were never counted. A partition that was unloaded
keeps its last counts: its messages do not change until it is loaded again, except that more arrive.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, final
from weakref import WeakKeyDictionary

import trio

from tidelog.broker.metrics import catalog
from tidelog.broker.metrics.queue_totals import QueueTotals
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.queues.queue_server import QueueServer
from tidelog.isr.leader import PartitionLeader
from tidelog.wire.errors import BrokerError, CorruptRecordError
from tidelog.wire.metrics.metric import Family, Labels, Metric

_AT_ONCE: Final = 50
"""Partitions that are read before other tasks run."""
_LOADS_AT_ONCE: Final = 8
_LOADS_MAX: Final = 100
"""Partitions that one collection begins to count for the first time."""
_LOADING_S: Final = 10.0

_COUNTERS: Final[Sequence[tuple[Metric, Callable[[QueueTotals], int]]]] = (
    (catalog.QUEUE_SENT, lambda each: each.sent),
    (catalog.QUEUE_RECEIVED, lambda each: each.received),
    (catalog.QUEUE_REDELIVERED, lambda each: each.redelivered),
    (catalog.QUEUE_DELETED, lambda each: each.deleted),
    (catalog.QUEUE_RELEASED, lambda each: each.released),
    (catalog.QUEUE_EXPIRED_LEASES, lambda each: each.expired_leases),
    (catalog.QUEUE_EXPIRED, lambda each: each.expired),
    (catalog.QUEUE_DEAD_LETTERS, lambda each: each.dead_letters),
    (catalog.QUEUE_DUPLICATES, lambda each: each.duplicates),
    (catalog.QUEUE_EMPTY_RECEIVES, lambda each: each.empty_receives),
)
_GAUGES: Final = (
    *(catalog.QUEUE_READY, catalog.QUEUE_LEASED, catalog.QUEUE_DELAYED, catalog.QUEUE_DEAD),
    catalog.QUEUE_AGE,
)


class _Depth(NamedTuple):
    """The messages of one partition, or of some."""

    ready: int = 0
    leased: int = 0
    delayed: int = 0
    dead: int = 0
    age_s: float = 0.0

    def plus(self, other: "_Depth") -> "_Depth":
        return _Depth(
            self.ready + other.ready,
            self.leased + other.leased,
            self.delayed + other.delayed,
            self.dead + other.dead,
            max(self.age_s, other.age_s),
        )


_EMPTY: Final = _Depth()


@final
class QueueCollector:
    """Reads counts and depths of the queue partitions that this broker serves."""

    def __init__(self, server: QueueServer) -> None:
        """Read the queues of `server`."""
        self._server = server
        self._labels: dict[str, Labels] = {}
        """By queue, rendered once."""
        self._times: WeakKeyDictionary[PartitionLeader, tuple[int, int | None]] = (
            WeakKeyDictionary()
        )
        """Offset of the oldest message by leader of the journal, and its time (Unix ms)."""
        self._arrived: WeakKeyDictionary[PartitionLeader, int] = WeakKeyDictionary()
        """End of the counted records of a topic, by leader of the journal of a queue on it."""
        self._counting: set[Partition] = set()
        self._limit = trio.CapacityLimiter(_LOADS_AT_ONCE)

    async def families(self, journals: Iterable[Partition]) -> list[Family]:
        """Return the metrics of all queues; `journals` are those that this broker leads."""
        server, depths = self._server, dict[str, _Depth]()
        unknown: list[Partition] = []
        for number, journal in enumerate(journals):
            if number % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            depth = None
            with suppress(BrokerError):  # Another broker serves it now, or it is being deleted.
                depth = await self._depth_of(journal)
                if depth is None:
                    unknown.append(journal)
            if depth is None:
                continue
            name = journal.queue_name
            if depth != _EMPTY and name not in server.counts:
                server.counts.of(name)  # There may be room for series of its own.
            name = name if name in server.counts else catalog.OTHER
            depths[name] = depths.get(name, _EMPTY).plus(depth)
        self._count_soon(unknown)
        server.counts.forget_idle(
            now=trio.current_time(), is_empty=lambda name: depths.get(name, _EMPTY) == _EMPTY
        )
        return self._families(depths, len(unknown))

    def _families(self, depths: dict[str, _Depth], unknown_count: int) -> list[Family]:
        counts = [*self._server.counts, (catalog.OTHER, self._server.counts.other)]
        labels = {name: self._labels_of(name) for name, _ in counts}
        self._labels = labels
        found = [
            Family(metric, [(labels[name], value(each)) for name, each in counts])
            for metric, value in _COUNTERS
        ]
        ordered = [(labels[name], depths.get(name, _EMPTY)) for name, _ in counts]
        found += [
            Family(metric, [(label, depth[index]) for label, depth in ordered])
            for index, metric in enumerate(_GAUGES)
        ]
        return [*found, Family(catalog.QUEUE_UNKNOWN, [(Labels(), unknown_count)])]

    def _labels_of(self, name: str) -> Labels:
        return self._labels.get(name) or catalog.QUEUE_READY.labelled(name)

    async def _depth_of(self, journal: Partition) -> _Depth | None:
        """Return the messages of a partition; `None` if they were never counted.

        Raises:
            BrokerError: This broker does not serve the partition.
        """
        server, leader = self._server, journal.leader
        if leader is None:
            return _EMPTY
        source = server.partitions.led(server.view(journal.topic_id).source_id, journal.number)
        self._count_arrivals(journal.queue_name, leader, source)
        hosted = server.loaded(*journal.key)
        if hosted is not None and hosted.is_loaded:
            known = hosted.summary()
        elif leader in server.idle:
            known = server.idle[leader]
        else:
            return _EMPTY if source.log.log_start_offset >= source.high_watermark else None
        now_ms = server.env.clock.now_ms()
        visible, leased, delayed = known.visible, known.in_flight, known.delayed
        if known.changes_at_ms is not None and known.changes_at_ms <= now_ms:
            visible, leased, delayed = visible + leased + delayed, 0, 0
        visible += max(0, source.high_watermark - known.records_end)
        if not (visible or leased or delayed or known.dead):
            return _EMPTY
        offset, oldest_ms = self._times.get(leader, (-1, None))
        if offset != known.oldest_offset or oldest_ms is None:
            oldest_ms = await self._time_at(source, known.oldest_offset)
            self._times[leader] = (known.oldest_offset, oldest_ms)
        age_s = 0.0 if oldest_ms is None else max(0, now_ms - oldest_ms) / 1000
        return _Depth(visible, leased, delayed, known.dead, age_s)

    def _count_arrivals(self, queue: str, leader: PartitionLeader, source: Partition) -> None:
        """Count records that became readable while this broker leads the partition."""
        assert source.leader is not None, "`led` returns only partitions that are led here"
        end = source.high_watermark
        counted = self._arrived.get(leader, source.leader.epoch_start_offset)
        if end > counted:
            self._server.counts.of(queue).sent += end - counted
        self._arrived[leader] = max(end, counted)

    async def _time_at(self, source: Partition, offset: int) -> int | None:
        try:
            return await self._server.search.time_at(source, offset)
        except CorruptRecordError:  # The time of a damaged record is unknown.
            return None

    def _count_soon(self, journals: list[Partition]) -> None:
        """Begin to load partitions that were never counted, those with thresholds first."""
        pinned = self._server.counts.pinned
        journals.sort(key=lambda journal: journal.queue_name not in pinned)
        for journal in journals[: max(0, _LOADS_MAX - len(self._counting))]:
            if journal not in self._counting:
                self._counting.add(journal)
                self._server.nursery.start_soon(self._count, journal)

    async def _count(self, journal: Partition) -> None:
        """Load a partition and have it unloaded soon, which remembers its counts."""
        try:
            async with self._limit:
                with suppress(BrokerError), trio.move_on_after(_LOADING_S):
                    hosted = self._server.find(*journal.key)
                    await hosted.wait_loaded()
                    self._server.unload_soon(hosted)
        finally:
            self._counting.discard(journal)
