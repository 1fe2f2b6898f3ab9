"""Collector of the metrics of queues.

Shell: checkpoints, and loads partitions that were never counted. A partition that was unloaded
keeps its last counts: its messages do not change until it is loaded again, except that more arrive.
"""

from collections.abc import Iterable
from contextlib import suppress
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple, final
from weakref import WeakKeyDictionary

import trio

from tidelog.broker.metrics import catalog
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.queues.partition.queue_summary import QueueSummary
from tidelog.broker.queues.queue_server import QueueServer
from tidelog.isr.leader import PartitionLeader
from tidelog.queue_layer.state.queue_state import QueueState
from tidelog.wire.errors import BrokerError, CorruptRecordError
from tidelog.wire.metrics.metric import Family, Labels, single, table

_AT_ONCE: Final = 50
"""Partitions that are read before other tasks run."""
_LOADS_AT_ONCE: Final = 8
_LOADS_MAX: Final = 100
"""Partitions that one collection begins to count for the first time."""
_LOADING_S: Final = 10.0

_COUNTERS: Final = (
    (catalog.QUEUE_SENT, "sent"),
    (catalog.QUEUE_RECEIVED, "received"),
    (catalog.QUEUE_REDELIVERED, "redelivered"),
    (catalog.QUEUE_DELETED, "deleted"),
    (catalog.QUEUE_RELEASED, "released"),
    (catalog.QUEUE_EXPIRED_LEASES, "expired_leases"),
    (catalog.QUEUE_EXPIRED, "expired"),
    (catalog.QUEUE_DEAD_LETTERS, "dead_letters"),
    (catalog.QUEUE_DUPLICATES, "duplicates"),
    (catalog.QUEUE_EMPTY_RECEIVES, "empty_receives"),
)
"""Metrics and the attributes of `QueueTotals`."""
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
class _Watched:
    """What is known of one queue partition while this broker leads it."""

    __slots__ = ("oldest_ms", "oldest_offset", "source", "state", "summary", "version")

    def __init__(self, source: Partition) -> None:
        self.source = source
        """The partition with the records."""
        self.state: QueueState | None = None
        """The state from which `summary` is, at `version`; `None` if it is not in memory."""
        self.version = 0
        self.summary: QueueSummary | None = None
        self.oldest_offset = -1
        self.oldest_ms: int | None = None
        """Unix milliseconds of the message at `oldest_offset`; `None` if it is not known."""


@final
class QueueCollector:
    """Reads counts and depths of the queue partitions that this broker serves."""

    def __init__(self, server: QueueServer) -> None:
        """Read the queues of `server`."""
        self._server = server
        self._labels: dict[str, Labels] = {}
        """By queue, rendered once."""
        self._watched: WeakKeyDictionary[PartitionLeader, _Watched] = WeakKeyDictionary()
        """By the leader of the journal."""
        self._sent: WeakKeyDictionary[Partition, dict[bytes, int]] = WeakKeyDictionary()
        """Records of clients in a partition of a topic that are counted, by queue on the topic."""
        self._counting: set[Partition] = set()
        self._limit = trio.CapacityLimiter(_LOADS_AT_ONCE)

    async def families(
        self, journals: Iterable[Partition], *, written: Iterable[Partition]
    ) -> list[Family]:
        """Return the metrics of all queues.

        `journals` are those that this broker leads, and `written` the partitions of topics whose
        records it got from clients.
        """
        await self._count_sent(written)
        server, depths = self._server, dict[str, _Depth]()
        unknown: list[Partition] = []
        now_ms = server.env.clock.now_ms()
        for number, journal in enumerate(journals):
            if number % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
                now_ms = server.env.clock.now_ms()
            depth = None
            with suppress(BrokerError):  # Another broker serves it now, or it is being deleted.
                watched = self._watch(journal)
                if watched is None:
                    continue
                depth = self._depth_of(journal, watched, now_ms)
                if depth is None:
                    unknown.append(journal)
                elif depth is not _EMPTY:
                    age_s = await self._age_s(watched, now_ms)
                    depth = depth._replace(age_s=age_s)
            if depth is None:
                continue
            name = journal.queue_name
            if depth is not _EMPTY and name not in server.counts:
                server.counts.of(name)  # There may be room for series of its own.
            name = name if name in server.counts else catalog.OTHER
            known = depths.get(name)
            depths[name] = depth if known is None else known.plus(depth)
        self._count_soon(unknown)
        server.counts.forget_idle(
            now=trio.current_time(),
            exists=server.has_queue,
            is_empty=lambda name: depths.get(name, _EMPTY) == _EMPTY,
        )
        return self._families(depths, len(unknown))

    def _families(self, depths: dict[str, _Depth], unknown_count: int) -> list[Family]:
        counts = [*self._server.counts, (catalog.OTHER, self._server.counts.other)]
        self._labels = {name: self._labels_of(name) for name, _ in counts}
        labels = list(self._labels.values())
        totals = [each for _, each in counts]
        shown = [depths.get(name, _EMPTY) for name in self._labels]
        found = [table(metric, labels, totals, attrgetter(name)) for metric, name in _COUNTERS]
        found += [
            table(metric, labels, shown, itemgetter(index)) for index, metric in enumerate(_GAUGES)
        ]
        return [*found, single(catalog.QUEUE_UNKNOWN, unknown_count)]

    def _labels_of(self, name: str) -> Labels:
        return self._labels.get(name) or catalog.QUEUE_READY.labelled(name)

    def _watch(self, journal: Partition) -> _Watched | None:
        """Return what is known of a partition; `None` if another broker serves it now.

        Raises:
            BrokerError: This broker does not serve the partition.
        """
        server, leader = self._server, journal.leader
        if leader is None:
            return None
        watched = self._watched.get(leader)
        if watched is None or watched.source.leader is None:
            source_id = server.view(journal.topic_id).source_id
            watched = _Watched(server.partitions.led(source_id, journal.number))
            self._watched[leader] = watched
        return watched

    async def _count_sent(self, written: Iterable[Partition]) -> None:
        """Count what clients sent: on the broker that appended it, whichever serves the queue.

        So the counts of all brokers together have each message once.
        """
        server = self._server
        for number, source in enumerate(written):
            if number % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            received, before = source.traffic.received_records, self._sent.get(source, {})
            counted = self._sent[source] = dict[bytes, int]()
            for queue in server.queues_on(source.topic_id):
                known = before.get(queue.topic_id)
                if known is None:
                    assert queue.queue is not None, "a journal has the parameters of its queue"
                    start = queue.queue.start_offsets[source.number]
                    known = max(0, received - max(0, source.log.log_end_offset - start))
                if received > known:
                    server.counts.of(queue.queue_name).sent += received - known
                counted[queue.topic_id] = received

    def _depth_of(self, journal: Partition, watched: _Watched, now_ms: int) -> _Depth | None:
        """Return the messages of a partition; `None` if they were never counted."""
        source = watched.source
        end = source.high_watermark
        known = self._summary(journal, watched, now_ms)
        if known is None:
            return _EMPTY if source.log.log_start_offset >= end else None
        visible, leased, delayed = known.visible, known.in_flight, known.delayed
        if known.changes_at_ms is not None and known.changes_at_ms <= now_ms:
            visible, leased, delayed = visible + leased + delayed, 0, 0
        visible += max(0, end - known.records_end)
        if not (visible or leased or delayed or known.dead):
            return _EMPTY
        return _Depth(visible, leased, delayed, known.dead)

    def _summary(self, journal: Partition, watched: _Watched, now_ms: int) -> QueueSummary | None:
        """Return the messages that are known, in memory or since the partition was unloaded."""
        hosted = self._server.loaded(*journal.key)
        if hosted is None or not hosted.is_loaded:
            watched.state = None
            if hosted is None:
                assert journal.leader is not None, "the caller has checked it"
                watched.summary = self._server.idle.get(journal.leader)
            return watched.summary
        state, known = hosted.core.state, watched.summary
        if (
            known is None
            or watched.state is not state
            or watched.version != state.version
            or known.records_end != state.records_from
            or (known.changes_at_ms is not None and known.changes_at_ms <= now_ms)
        ):
            watched.summary = known = hosted.summary()
            watched.state, watched.version = state, state.version
        return known

    async def _age_s(self, watched: _Watched, now_ms: int) -> float:
        """Return the age of the oldest message, 0 if it is not known."""
        known = watched.summary
        offset = watched.source.log.log_start_offset if known is None else known.oldest_offset
        if watched.oldest_offset != offset or watched.oldest_ms is None:
            watched.oldest_offset, watched.oldest_ms = offset, None
            await trio.lowlevel.checkpoint()  # The record may not be in memory.
            with suppress(CorruptRecordError):  # The time of a damaged record is unknown.
                watched.oldest_ms = await self._server.search.time_at(watched.source, offset)
        return 0.0 if watched.oldest_ms is None else max(0, now_ms - watched.oldest_ms) / 1000

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
