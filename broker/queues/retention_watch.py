"""Watch over the oldest messages of queues: they expire by time, and a warning comes before.

Shell: owns two tasks. A queue that is not in memory is loaded only when its log has a record that
may be near the limit, and then once: its messages do not change until it is loaded again. So an
idle queue costs one look at its oldest record in each retention time. Warnings count both ages,
that of the queue and that of its topic; a limit by size may be reached at any time.
"""

from contextlib import suppress
from typing import Final, final
from weakref import WeakKeyDictionary

import msgspec
import trio

from tidelog.broker.partitions.idle_replicas import QueueRest
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.queues.queue_server import QueueServer
from tidelog.broker.queues.queue_view import QueueView
from tidelog.broker.queues.supervisor import supervising, surviving
from tidelog.broker.requests.deadlines import Deadlines
from tidelog.coordinator.metadata.catalog import Topic
from tidelog.isr.leader import PartitionLeader
from tidelog.wire.errors import BrokerError, CorruptRecordError

_ROUND_S: Final = 60.0
_PARTITIONS_AT_ONCE: Final = 100
"""Number of partitions checked before other tasks run."""
_PAUSE_MS: Final = 1_000
"""Minimum time in milliseconds between two looks at a partition."""
_RETRY_MS: Final = 60_000
_REPEAT_MS: Final = 3_600_000
"""Time in milliseconds before a queue is reported again."""
_LOADING_S: Final = 5.0
"""Maximum time in seconds that a slow load delays other queues."""
_NEAR: Final = 0.9
"""Fraction of the retention time at which a message is reported."""
_AT_ONCE: Final = 8
"""Maximum looks at a time: slow loads should not delay others."""
_CLOCK_LOOK_S: Final = 10.0
"""Maximum wait in seconds: retention is by time of day, and the clock may jump."""


class _Oldest(msgspec.Struct, frozen=True, gc=False):
    """Bounds of the messages of one partition of a queue, unless it was loaded since."""

    journal: Topic
    """The settings with which they were found."""
    offset: int
    """No message is below."""
    is_exact: bool = False
    """Whether the first message at or above the offset, if there is one, is the oldest."""
    kept_until_ms: int = 0
    """Time before which no message expires, if that is later than its record says; Unix ms."""


@final
class RetentionWatch:
    """Looks at the oldest message of every queue partition that this broker leads, in time."""

    def __init__(self, server: QueueServer) -> None:
        """Watch the queues of `server`; `run` must run in a task."""
        self._server = server
        self._oldest: WeakKeyDictionary[PartitionLeader, _Oldest] = WeakKeyDictionary()
        """By the leader of the journal: a new leader starts without bounds."""
        self._warned_at_ms: dict[bytes, int] = {}
        """Time of each queue's last report; Unix milliseconds."""
        self._due: Deadlines[Partition] = Deadlines()
        """Journals by the time of the next look, in seconds of the broker's clock."""
        self._has_earlier = trio.Event()
        self._looks = trio.CapacityLimiter(_AT_ONCE)
        self._looked_at: set[Partition] = set()
        for partition in server.partitions.all():
            self._look_soon(partition)
        server.partitions.listeners.append(self._look_soon)

    async def run(self) -> None:
        """Look at queues when their messages may expire, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_rounds)
            await self._run_looks(nursery)

    def rest_of(self, journal: Partition) -> QueueRest | None:
        """Return what a partition waits for, `None` while it has work."""
        due_s = self._due.deadline_of(journal)
        if due_s is None or journal in self._looked_at or not self._server.is_at_rest(journal):
            return None
        is_drained = False
        with suppress(BrokerError):  # It is being deleted.
            is_drained = self._server.is_drained(journal)
        return QueueRest(None if is_drained else int(due_s * 1000), is_drained)

    def _look_soon(self, partition: Partition) -> None:
        if partition.queue_name:
            self._look_at_ms(partition, 0)

    def _look_at_ms(self, partition: Partition, time_ms: int) -> None:
        self._due.discard(partition)
        if self._due.add(partition, time_ms / 1000):
            self._has_earlier.set()

    async def _run_rounds(self) -> None:
        """Look once a minute at queues with new settings, and at logs that lost messages."""
        while True:
            await trio.sleep(_ROUND_S)
            now_ms = self._server.env.clock.now_ms()
            self._warned_at_ms = {
                queue_id: at_ms
                for queue_id, at_ms in self._warned_at_ms.items()
                if now_ms - _REPEAT_MS < at_ms <= now_ms
            }
            partitions = self._server.partitions.all()
            for partition in self._due.items() - set(partitions):
                self._due.discard(partition)  # Its queue was deleted.
            for number, partition in enumerate(partitions):
                if number % _PARTITIONS_AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
                if partition.queue_name and partition.leader is not None:
                    with surviving(f"checking the settings of {partition.log.directory}"):
                        self._compare(partition, partition.leader)

    def _compare(self, journal: Partition, leader: PartitionLeader) -> None:
        oldest = self._oldest.get(leader)
        if oldest is not None:
            try:
                view = self._server.view(journal.topic_id)
            except BrokerError:
                return  # It was deleted.
            source = self._server.partitions.replica(view.source_id, journal.number)
            log_start_offset = 0 if source is None else source.log.log_start_offset
            hosted = self._server.loaded(*journal.key)
            has_seeked = hosted is not None and hosted.core.state.oldest_offset < oldest.offset
            if (
                view.journal is oldest.journal
                and oldest.offset >= log_start_offset
                and not has_seeked
            ):
                return
        self._look_soon(journal)

    async def _run_looks(self, nursery: trio.Nursery) -> None:
        clock = self._server.env.clock
        while True:
            due_at = self._due.next_deadline
            wait_s = _CLOCK_LOOK_S if due_at is None else due_at - clock.now_ms() / 1000
            with trio.move_on_after(min(max(wait_s, 0), _CLOCK_LOOK_S)):
                await self._has_earlier.wait()
            self._has_earlier = trio.Event()
            for partition in self._due.take_expired(clock.now_ms() / 1000):
                if partition in self._looked_at:
                    self._look_at_ms(partition, clock.now_ms() + _PAUSE_MS)
                elif partition.leader is not None:  # Otherwise another broker serves it now.
                    await self._looks.acquire_on_behalf_of(partition)
                    self._looked_at.add(partition)
                    nursery.start_soon(self._look, partition, partition.leader)

    async def _look(self, partition: Partition, leader: PartitionLeader) -> None:
        clock = self._server.env.clock
        due_ms = clock.now_ms() + _RETRY_MS
        try:
            with surviving(f"checking the age of messages in {partition.log.directory}"):
                due_ms = await self._try_look(partition, leader)
        finally:
            self._looks.release_on_behalf_of(partition)
            self._looked_at.discard(partition)
        self._look_at_ms(partition, max(due_ms, clock.now_ms() + _PAUSE_MS))

    async def _try_look(self, journal: Partition, leader: PartitionLeader) -> int:
        """Return the time of the next look, in Unix milliseconds."""
        try:
            return await self._look_at(journal, leader)
        except (BrokerError, trio.TooSlowError):
            # Another broker serves it now, or it cannot be read: both are reported elsewhere.
            return self._server.env.clock.now_ms() + _RETRY_MS

    async def _look_at(self, journal: Partition, leader: PartitionLeader) -> int:
        """Expire what is too old, and warn; return the time of the next look.

        Raises:
            BrokerError: This broker does not serve the queue, or its log cannot be read or written.
            trio.TooSlowError: The queue was not loaded in time.
        """
        server, now_ms = self._server, self._server.env.clock.now_ms()
        oldest = self._oldest.get(leader)
        view = server.view(journal.topic_id)
        source = server.partitions.replica(view.source_id, journal.number)
        if source is None or source.is_held:
            return now_ms + _RETRY_MS
        ages = (view.retention_ms, source.log.config.retention_ms)
        limit_ms = min((age for age in ages if age is not None), default=None)
        hosted = server.loaded(*journal.key)
        if oldest is None or view.journal is not oldest.journal:
            oldest = _Oldest(view.journal, source.log.log_start_offset)
        sent_ms = await self._time_at(source, oldest.offset)
        is_near = limit_ms is not None and sent_ms is not None and _near(sent_ms, limit_ms) < now_ms
        if (
            (hosted is not None and hosted.is_loaded)
            or oldest.offset < source.log.log_start_offset
            or (is_near and not oldest.is_exact)
            or _expires_ms(oldest, sent_ms, now_ms=now_ms) <= now_ms
        ):
            with trio.fail_after(_LOADING_S):
                oldest = await self._expired(view, journal)
            sent_ms = await self._time_at(source, oldest.offset)
        self._oldest[leader] = oldest
        due_ms = _expires_ms(oldest, sent_ms, now_ms=now_ms)
        if sent_ms is not None and _is_kept(oldest, sent_ms, now_ms=now_ms):
            limit_ms = source.log.config.retention_ms
        if limit_ms is None:
            return due_ms
        # Later records are younger than now.
        near_ms = _near(now_ms if sent_ms is None else sent_ms, limit_ms)
        if sent_ms is not None and near_ms < now_ms:
            self._warn(view, journal.number, now_ms - sent_ms, retention_ms=limit_ms)
            near_ms = self._warned_at_ms[view.queue_id] + _REPEAT_MS + 1
        return min(due_ms, near_ms + 1)

    async def _time_at(self, source: Partition, offset: int) -> int | None:
        """Return the time of the first record at or above an offset; `None`: there is none.

        The time of damaged records is unknown: a repair may bring it back.
        """
        try:
            return await self._server.search.time_at(source, offset)
        except CorruptRecordError:
            return None

    async def _expired(self, view: QueueView, journal: Partition) -> _Oldest:
        """Expire messages that are too old, and remove those that the log has deleted.

        Records are read up to the first message: those before it are chunks of sends that failed.

        Raises:
            BrokerError: This broker does not serve the queue, or its log cannot be read or written.
        """
        server = self._server
        was_here = server.loaded(*journal.key) is not None
        hosted = server.loaded(*journal.key) or server.find(*journal.key)
        await hosted.wait_loaded()
        state = hosted.core.state
        due_ms = self._server.env.clock.now_ms() + _RETRY_MS
        try:
            with supervising(hosted), suppress(BrokerError):  # Tried again later.
                await hosted.trim_all()
                due_ms = await hosted.expire_due()
                await hosted.records.drive(
                    hosted.records.feed(hosted.core, lambda: state.first_message is not None)
                )
        finally:
            if not was_here:
                server.unload_soon(hosted)
        return _Oldest(
            view.journal, state.oldest_offset, is_exact=not was_here, kept_until_ms=due_ms
        )

    def _warn(self, view: QueueView, number: int, age_ms: int, *, retention_ms: int) -> None:
        env = self._server.env
        now_ms = env.clock.now_ms()
        if now_ms - self._warned_at_ms.get(view.queue_id, 0) <= _REPEAT_MS:
            return
        self._warned_at_ms[view.queue_id] = now_ms
        env.probe(
            "messages_expire_soon",
            severity="warning",
            queue=view.name,
            partition=number,
            oldest_age_ms=age_ms,
            retention_ms=retention_ms,
        )


def _retention_ms(oldest: _Oldest) -> int | None:
    config = oldest.journal.queue_config
    return None if config is None else config.retention_ms


def _is_kept(oldest: _Oldest, sent_ms: int, *, now_ms: int) -> bool:
    """Return whether the oldest message stays beyond its retention: a dead letter, or delayed."""
    retention_ms = _retention_ms(oldest)
    return retention_ms is not None and sent_ms + retention_ms <= now_ms < oldest.kept_until_ms


def _near(sent_ms: int, limit_ms: int) -> int:
    """Return the time after which a message is reported."""
    return sent_ms + int(limit_ms * _NEAR)


def _expires_ms(oldest: _Oldest, sent_ms: int | None, *, now_ms: int) -> int:
    """Return a time before which no message expires, as far as is known."""
    retention_ms = _retention_ms(oldest)
    if retention_ms is None:
        return now_ms + _REPEAT_MS
    if sent_ms is None:
        return now_ms + retention_ms
    return max(sent_ms + retention_ms, oldest.kept_until_ms)
