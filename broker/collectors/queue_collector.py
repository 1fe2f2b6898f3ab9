"""Collector of the metrics of queues.

Shell: checkpoints, and loads partitions that were never counted. A partition that was unloaded
keeps its last counts: its messages do not change until it is loaded again, except that more arrive.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple, final
from weakref import WeakKeyDictionary

import trio

from tidelog.broker.collectors.object_rows import AT_ONCE, rows_of
from tidelog.broker.metrics import catalog
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.queues.partition.hosted_partition import HostedPartition
from tidelog.broker.queues.partition.queue_summary import QueueSummary
from tidelog.broker.queues.queue_server import QueueServer
from tidelog.isr.leader import PartitionLeader
from tidelog.queue_layer.state.queue_state import QueueState
from tidelog.wire.errors import BrokerError, CorruptRecordError
from tidelog.wire.metrics.metric import Family, Labels, single, table

_AT_ONCE: Final = 50
"""Partitions that are read before other tasks run."""
_PASSED_AT_ONCE: Final = 2_000
"""Partitions of queues without series that are passed over before other tasks run."""
_PER_S: Final = 1_000
"""Partitions for each second of the time until queues without series are looked at again."""
_LOADS_AT_ONCE: Final = 8
_LOADS_MAX: Final = 100
"""Partitions that one collection begins to count for the first time."""
_LOADING_S: Final = 10.0
_RECOUNTING_S: Final = 1.0
"""Maximum time in seconds that a collection waits for partitions to be loaded."""

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

    __slots__ = (
        "attempts",
        "oldest_ms",
        "oldest_offset",
        "source",
        "state",
        "summary",
        "version",
    )

    def __init__(self, source: Partition) -> None:
        self.source = source
        """The partition with the records."""
        self.attempts = 0
        """How often it was to be loaded, so that it is counted."""
        self.state: QueueState | None = None
        """The state from which `summary` is, at `version`; `None` if it is not in memory."""
        self.version = 0
        self.summary: QueueSummary | None = None
        self.oldest_offset = -1
        self.oldest_ms: int | None = None
        """Unix milliseconds of the message at `oldest_offset`; `None` if it is not known."""


_Place = tuple[Partition, _Watched]


def _depth_of(
    source: Partition, known: QueueSummary | None, *, end: int, now_ms: int
) -> _Depth | None:
    """Return the messages of a partition below `end`; `None` if they were never counted.

    Messages that the queue has not read yet count as visible.
    """
    if known is None:
        return _EMPTY if source.log.log_start_offset >= end else None
    visible, leased = known.visible, known.in_flight
    if known.has_changed(now_ms):  # An estimate: most leases end together, and most delays do not.
        visible, leased = visible + leased, 0
    visible += max(0, end - known.records_end)
    if not (visible or leased or known.delayed or known.dead):
        return _EMPTY
    return _Depth(visible, leased, known.delayed, known.dead)


@final
@dataclass(slots=True)
class _Found:
    """What a collection has found so far."""

    depths: dict[str, _Depth] = field(default_factory=dict[str, _Depth])
    """By queue."""
    unknown: list[_Place] = field(default_factory=list[_Place])
    """Partitions that were never counted."""
    due: list[_Place] = field(default_factory=list[_Place])
    """Partitions that are not in memory and whose messages have changed by time."""


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
        self._sent: WeakKeyDictionary[Partition, tuple[int, frozenset[bytes]]] = WeakKeyDictionary()
        """Records of clients in a partition of a topic that are counted, and for which queues."""
        self._whole_at = float("-inf")
        """When queues without series of their own are looked at next, in seconds of trio's clock.
        """
        self._rest: _Depth | None = None
        """Their messages, as of the last look."""
        self._unknown_count = 0
        self._counting: set[Partition] = set()
        self._limit = trio.CapacityLimiter(_LOADS_AT_ONCE)

    async def families(
        self, journals: Iterable[Partition], *, written: Iterable[Partition], uncounted: int = 0
    ) -> list[Family]:
        """Return the metrics of all queues.

        `journals` are those that this broker leads, and `written` the partitions of topics whose
        records it got from clients. Another `uncounted` journals are closed.
        """
        server, now = self._server, trio.current_time()
        await self._count_sent(written)
        found, is_whole = _Found(), now >= self._whole_at
        looked_at = 0
        for number, journal in enumerate(journals):
            if number % _PASSED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            if not (is_whole or journal.queue_name in server.counts):
                continue
            looked_at += 1
            if looked_at % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            await self._look(journal, found)
        await self._recount(found)
        self._count_soon(found.unknown)
        depths = found.depths
        if is_whole:
            self._whole_at = now + looked_at / _PER_S
            self._rest, self._unknown_count = depths.get(catalog.OTHER), len(found.unknown)
        elif self._rest is not None:
            depths[catalog.OTHER] = self._rest
        for _ in server.counts.forget_idle(
            now=trio.current_time(),
            exists=server.has_queue,
            is_empty=lambda name: depths.get(name, _EMPTY) == _EMPTY,
        ):
            await trio.lowlevel.checkpoint()
        return await self._families(depths, self._unknown_count + uncounted)

    async def _look(self, journal: Partition, found: "_Found", *, is_last: bool = False) -> None:
        """Add the messages of a partition, or note that they must be counted first."""
        server, now_ms = self._server, self._server.env.clock.now_ms()
        depth = None
        with suppress(BrokerError):  # Another broker serves it now, or it is being deleted.
            watched = self._watch(journal)
            if watched is None:
                return
            known = self._summary(journal, watched, now_ms)
            is_old = watched.state is None and known is not None and known.has_changed(now_ms)
            if is_old and not is_last:
                found.due.append((journal, watched))
                return
            end = watched.source.high_watermark
            depth = _depth_of(watched.source, known, end=end, now_ms=now_ms)
            if depth is None:
                found.unknown.append((journal, watched))
            elif depth is not _EMPTY:
                depth = depth._replace(age_s=await self._age_s(watched, now_ms))
                if known is not None and known.records_end < end:
                    delayed = await self._delayed(
                        journal, watched.source, first=known.records_end, end=end
                    )
                    ready = depth.ready - delayed
                    depth = depth._replace(ready=ready, delayed=depth.delayed + delayed)
        if depth is None:
            return
        name = journal.queue_name
        if depth is not _EMPTY and name not in server.counts:
            server.counts.of(name)  # There may be room for series of its own.
        name = name if name in server.counts else catalog.OTHER
        before = found.depths.get(name)
        found.depths[name] = depth if before is None else before.plus(depth)

    async def _families(self, depths: dict[str, _Depth], unknown_count: int) -> list[Family]:
        self._labels, totals = await rows_of(self._server.counts, catalog.QUEUE_READY, self._labels)
        shown: list[_Depth] = []
        for number, name in enumerate(self._labels):
            if number % AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            shown.append(depths.get(name, _EMPTY))
        labels = list(self._labels.values())
        found = [
            table(metric, labels, totals, value=attrgetter(name)) for metric, name in _COUNTERS
        ]
        found += [
            table(metric, labels, shown, value=itemgetter(index))
            for index, metric in enumerate(_GAUGES)
        ]
        return [*found, single(catalog.QUEUE_UNKNOWN, unknown_count)]

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
            received = source.traffic.received_records
            counted, counted_for = self._sent.get(source, (-1, frozenset[bytes]()))
            if counted == received:
                continue
            queues = server.queues_on(source.topic_id)
            for queue in queues:
                known = counted
                if queue.topic_id not in counted_for:
                    assert queue.queue is not None, "a journal has the parameters of its queue"
                    start = queue.queue.start_offsets[source.number]
                    known = max(0, received - max(0, source.log.log_end_offset - start))
                if received > known:
                    server.counts.of(queue.queue_name).sent += received - known
            self._sent[source] = received, frozenset(queue.topic_id for queue in queues)

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
            or known.has_changed(now_ms)
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

    async def _delayed(self, journal: Partition, source: Partition, *, first: int, end: int) -> int:
        """Return how many messages of a range, which the queue has not read, are delayed by it.

        A delay that a message has itself is not known before it is read.
        """
        server = self._server
        config = server.view(journal.topic_id).journal.queue_config
        delay_ms = 0 if config is None else config.delivery_delay_ms
        if not delay_ms:
            return 0
        sent_ms = server.env.clock.now_ms() - delay_ms
        with suppress(CorruptRecordError):  # The times of damaged records are unknown.
            begin = (await server.search.find_time(source, sent_ms + 1)).offset
            if begin is not None:
                return max(0, end - max(first, begin))
        return 0

    async def _recount(self, found: _Found) -> None:
        """Load the partitions whose messages have changed by time, and add them.

        They stay in memory like used ones, so that this does not happen at each collection.
        """
        with trio.move_on_after(_RECOUNTING_S):
            async with trio.open_nursery() as nursery:
                for journal in self._first(found.due, _LOADS_MAX):
                    nursery.start_soon(self._load, journal)
        for journal, _ in found.due:
            await self._look(journal, found, is_last=True)

    def _count_soon(self, unknown: list[_Place]) -> None:
        """Begin to load partitions that were never counted."""
        for journal in self._first(unknown, _LOADS_MAX - len(self._counting)):
            if journal not in self._counting:
                self._counting.add(journal)
                self._server.nursery.start_soon(self._count, journal)

    def _first(self, places: list[_Place], maximum: int) -> list[Partition]:
        """Return those to load: with thresholds first, and last what often could not be loaded."""
        pinned = self._server.counts.pinned
        places.sort(key=lambda place: (place[0].queue_name not in pinned, place[1].attempts))
        chosen = places[: max(0, maximum)]
        for _, watched in chosen:
            watched.attempts += 1
        return [journal for journal, _ in chosen]

    async def _count(self, journal: Partition) -> None:
        """Load a partition and have it unloaded soon, which remembers its counts."""
        try:
            hosted = await self._load(journal)
            if hosted is not None:
                self._server.unload_soon(hosted)
        finally:
            self._counting.discard(journal)

    async def _load(self, journal: Partition) -> HostedPartition | None:
        """Return the partition when it is loaded; `None` if it cannot be."""
        async with self._limit:
            with suppress(BrokerError), trio.move_on_after(_LOADING_S):
                hosted = self._server.find(*journal.key)
                await hosted.wait_loaded()
                return hosted
        return None
