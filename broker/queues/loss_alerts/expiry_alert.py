"""Says in the log of the broker that a queue is about to lose messages, and that it has lost some.

Shell: owns one task. What maintenance looked at is looked at again, without a look at idle queues:
as long as neither the oldest segment of a log is about to go, nor its oldest record too old for a
queue, nothing of any of its queues is. Only then a queue is loaded, and for that once: what is
known of one that is not loaded does not change. Only messages count that nobody has deleted.
"""

from typing import Final, final
from weakref import WeakKeyDictionary

import msgspec
import trio

from tidelog.broker.partitions.partition import Partition
from tidelog.broker.queues.loss_alerts.expiry_forecast import Losses, MessageLoss, OldestMessage
from tidelog.broker.queues.queue_server import QueueServer
from tidelog.broker.queues.queue_view import QueueView, view_of
from tidelog.broker.queues.supervision import surviving
from tidelog.coordinator.controller.replicated_state import ReplicatedMetadata
from tidelog.coordinator.metadata.catalog import Topic
from tidelog.wire.errors import BrokerError

_AGAIN_MS: Final = 60_000
"""A queue that loses messages all the time is looked at so often; so is one that cannot be."""
_SETTINGS_MS: Final = 5 * 60_000
"""So often every log is looked at that is not blank: settings may be other ones, and somebody may
have gone back in time. Less than a queue stays loaded that nobody uses any more."""
_SAID_AGAIN_MS: Final = 3_600_000
"""How long nothing more is said of a queue that is near a loss."""
_LOADING_S: Final = 5.0
"""Other queues do not wait longer for one that cannot be loaded."""


class _Known(msgspec.Struct, gc=False):
    """What is known of the messages of one partition of a queue."""

    oldest: OldestMessage
    """There is no older one, in its place and in its time."""
    is_exact: bool = False
    """Whether it was there when the queue was looked at, which was not loaded since."""
    again_ms: int = 0
    """No look before: Unix milliseconds."""


class _Log(msgspec.Struct):
    """What is known of the queues of one log."""

    look_at_ms: int = 0
    """Until then no message is too old for anybody: Unix milliseconds."""
    queues: dict[bytes, _Known] = {}


@final
class LossWatch:
    """Watches over the messages of all queues that this broker leads."""

    def __init__(self, server: QueueServer, metadata: ReplicatedMetadata, losses: Losses) -> None:
        """Watch what `server` has; `run` must run in a task."""
        self._server = server
        self._metadata = metadata
        self._losses = losses
        self._logs: WeakKeyDictionary[Partition, _Log] = WeakKeyDictionary()
        self._due: dict[tuple[Partition, bytes], None] = {}
        self._said: dict[bytes, int] = {}
        """Of which queues it was said that they are near a loss, and when, the longest ago first;
        Unix milliseconds."""
        self._has_changed = trio.Event()
        losses.retention.listeners.append(self.looked_after)

    def looked_after(self, source: Partition) -> None:
        """Look at the queues of a log if there may be reason to: maintenance was there."""
        if source.queue_name or source.is_staging:
            return
        if source.leader is None or source.is_held:
            self._logs.pop(source, None)
            return
        log = self._logs.get(source)
        if log is None:
            log = self._logs[source] = _Log()
        now_ms = self._losses.env.clock.now_ms()
        is_early = now_ms < log.look_at_ms
        if is_early and source.log.segment_count == 1:
            return
        journals = self._metadata.state.catalog.journals_of(source.topic_id)
        if is_early and not (journals and self._losses.is_segment_near(source, now_ms=now_ms)):
            return
        log.look_at_ms = now_ms + _SETTINGS_MS
        for journal in journals:
            self._look(source, log, journal, now_ms=now_ms)

    def _look(self, source: Partition, log: _Log, journal: Topic, *, now_ms: int) -> None:
        """Have a queue looked at that may be near a loss."""
        queue_id = journal.topic_id
        known = log.queues.get(queue_id)
        if known is None:
            self._plan(source, queue_id)
            return
        hosted = self._server.loaded(queue_id, source.number)
        if hosted is not None and hosted.is_loaded:
            low_water_mark = hosted.core.state.low_water_mark
            if low_water_mark < known.oldest.offset:  # Somebody went back in time.
                del log.queues[queue_id]
                self._plan(source, queue_id)
                return
            known.oldest = OldestMessage(low_water_mark, known.oldest.timestamp_ms)
            known.is_exact = False
        if known.oldest.offset >= source.high_watermark or now_ms < known.again_ms:
            return
        view = view_of(self._metadata.state.catalog, queue_id)
        log.look_at_ms = min(log.look_at_ms, self._losses.near_at_ms(known.oldest, source, view))
        loss = self._losses.of(known.oldest, source, view)
        if known.oldest.offset < source.log.log_start_offset:
            self._plan(source, queue_id)
        elif loss.is_soon and known.is_exact:
            self._say(source, view, loss)
        elif loss.is_soon:
            self._plan(source, queue_id)

    def _plan(self, source: Partition, queue_id: bytes) -> None:
        self._due[source, queue_id] = None
        self._has_changed.set()

    async def run(self) -> None:
        """Look at queues that may be near a loss, until cancelled."""
        while True:
            await self._has_changed.wait()
            self._has_changed = trio.Event()
            while self._due:
                source, queue_id = next(iter(self._due))
                del self._due[source, queue_id]
                log = self._logs.get(source)
                if log is None:
                    continue
                with surviving(f"looking whether a queue loses messages in {source.log.directory}"):
                    await self._look_into(source, log, queue_id)

    async def _look_into(self, source: Partition, log: _Log, queue_id: bytes) -> None:
        """Find out which messages a queue has, and when they go."""
        known = log.queues.get(queue_id)
        again_ms = self._losses.env.clock.now_ms() + _AGAIN_MS
        try:
            view = self._server.view(queue_id)
            if known is None:
                # Maybe that is enough to know that there is time.
                log.queues[queue_id] = await self._found(source, source.log.log_start_offset)
                log.look_at_ms = 0
                return
            with trio.fail_after(_LOADING_S):
                low_water_mark = await self._low_water_mark(source, view)
            known = log.queues[queue_id] = await self._found(source, low_water_mark)
            known.is_exact = True
            loss = self._losses.of(known.oldest, source, view)
            if loss.is_soon and known.oldest.offset < source.high_watermark:
                self._say(source, view, loss)
        except (BrokerError, trio.TooSlowError):
            pass  # It is served by somebody else now, or cannot be read: others say so.
        if known is not None:
            known.again_ms = again_ms

    async def _found(self, source: Partition, offset: int) -> _Known:
        oldest = await self._losses.oldest(source, offset)
        if oldest is None:  # What comes will be younger than now.
            oldest = OldestMessage(source.high_watermark, self._losses.env.clock.now_ms())
        return _Known(oldest)

    async def _low_water_mark(self, source: Partition, view: QueueView) -> int:
        """Return below which offset a queue has no messages.

        Those that the log has lost are done away with, which is said.

        Raises:
            BrokerError: It is not served here, or cannot be read or written.
        """
        server, key = self._server, (view.queue_id, source.number)
        was_here = server.loaded(*key) is not None
        hosted = server.find(*key)
        await hosted.wait_loaded()
        await hosted.trim_all()
        if not was_here:
            server.keep_briefly(hosted)
        return hosted.core.state.low_water_mark

    def _say(self, source: Partition, view: QueueView, loss: MessageLoss) -> None:
        """Tell the operator, unless that was done of late."""
        now_ms, said = self._losses.env.clock.now_ms(), self._said
        while said and not now_ms - _SAID_AGAIN_MS < next(iter(said.values())) <= now_ms:
            del said[next(iter(said))]
        if view.queue_id in said:
            return
        said[view.queue_id] = now_ms
        self._losses.env.probe(
            "messages_go_soon",
            severity="warning",
            queue=view.name,
            partition=source.number,
            in_ms=loss.in_ms,
            in_bytes=loss.in_bytes,
            in_disk_bytes=loss.in_disk_bytes,
        )
