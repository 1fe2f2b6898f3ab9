"""Redrive job: moves dead letters back, and continues after a failover (SQS: StartMessageMoveTask).

Shell: owns one task while a redrive of its partition runs. The journal records the progress. The
job chooses messages and their targets; `broker.queues.dead_letters.mover` moves them.
"""

from typing import Final, final

import trio

from tidelog.broker.queues.dead_letter_record import DeadLetterRecord
from tidelog.broker.queues.dead_letters.topic_producer import TopicProducer
from tidelog.broker.queues.partition.hosted_partition import HostedPartition
from tidelog.broker.queues.partition.source_records import UndecodableRecordsError
from tidelog.broker.queues.supervisor import start_supervised
from tidelog.queue_layer.state.redrive_state import Redrive
from tidelog.wire.errors import BrokerError, UnknownTopicIdError
from tidelog.wire.messages.queue_journal import Target
from tidelog.wire.messages.queues import (
    ORIGIN_PARTITION_HEADER,
    ORIGIN_QUEUE_HEADER,
    ORIGIN_TOPIC_HEADER,
    Run,
)
from tidelog.wire.messages.redrives import RedriveStatus

LOST_DESTINATION: Final = "a destination was deleted; the messages that are not moved stay"
"""Reason of a redrive that failed."""
_AT_ONCE: Final = 100
_RETRY_S: Final = 1.0
_DIGITS_MAX: Final = 20


@final
class RedriveJob:
    """Goes through the messages of one partition of a queue while a redrive runs."""

    def __init__(
        self, nursery: trio.Nursery, producer: TopicProducer, hosted: HostedPartition
    ) -> None:
        """Look up topics with `producer`; the task runs in `nursery`."""
        self._nursery = nursery
        self._producer = producer
        self._hosted = hosted
        self.is_running = False
        """Whether the task of a redrive runs."""

    def start_if_running(self) -> None:
        """Start or resume the task if a redrive runs."""
        if not self.is_running and self._redrive is not None:
            self.is_running = True
            start_supervised(self._nursery, self._hosted, self._run)

    @property
    def _redrive(self) -> Redrive | None:
        redrive = self._hosted.core.state.redrive
        is_running = redrive is not None and redrive.status is RedriveStatus.RUNNING
        return redrive if is_running else None

    def _runs(self, redrive: Redrive) -> bool:
        """Return whether this redrive is still the running one."""
        running = self._redrive
        return running is not None and running.number == redrive.number

    async def _run(self) -> None:
        hosted = self._hosted
        try:
            while hosted.error is None and (redrive := self._redrive) is not None:
                pause_s = 0.0
                try:
                    count = await self._step(redrive)
                    if redrive.messages_per_s:
                        pause_s = count / redrive.messages_per_s
                except BrokerError as error:
                    hosted.probe(
                        "redrive_waits",
                        severity="warning",
                        reason=str(error),
                    )
                    pause_s = _RETRY_S
                await trio.sleep(pause_s)
        finally:
            self.is_running = False

    async def _step(self, redrive: Redrive) -> int:
        """Decide about the next messages; return how many were taken out.

        Raises:
            BrokerError: The step must be tried again.
        """
        hosted = self._hosted
        await hosted.catch_up()
        if not self._runs(redrive):
            return 0
        if redrive.destination is not None and not self._accepts(redrive.destination):
            hosted.require()
            hosted.decide(
                hosted.core.end_redrive(
                    RedriveStatus.FAILED, LOST_DESTINATION, now_ms=hosted.now_ms()
                )
            )
            await hosted.wait_committed()
            return 0
        at_once = min(_AT_ONCE, redrive.messages_per_s or _AT_ONCE)
        runs, next_offset = hosted.core.redrive_candidates(at_once)
        offsets = [offset for first, count in runs for offset in range(first, first + count)]
        moves: dict[Target, list[Run]] = {}
        count = skipped = 0
        reason = ""
        records: list[DeadLetterRecord] = []
        try:
            records = await hosted.records.read_records(runs)
        except UndecodableRecordsError as error:
            skipped = error.count_in(runs)
            del offsets[:skipped]
        if not self._runs(redrive):
            return 0
        for record in records:
            target = self._target(record, redrive)
            if isinstance(target, str):
                skipped += 1
                reason = reason or target
            else:
                moves.setdefault(target, []).append((record.offset, 1))
                count += 1
            offsets.remove(record.offset)
        if offsets and offsets[0] < next_offset:
            # The read returned fewer records than wanted: the next step begins there.
            next_offset = offsets[0]
        hosted.require()
        hosted.decide(
            hosted.core.redrive_progressed(
                list(moves.items()),
                next_offset,
                skipped=skipped,
                reason=reason,
                now_ms=hosted.now_ms(),
            )
        )
        await hosted.wait_committed()
        return count

    def _accepts(self, destination: bytes) -> bool:
        """Return whether a destination takes messages; if not, it is deleted or a journal.

        Raises:
            UnknownTopicIdError: The destination is not known here.
        """
        if not self._producer.knows(destination):
            raise UnknownTopicIdError(
                f"no topic has the id {destination.hex()} here, maybe not yet; the redrive waits"
            )
        return self._producer.partition_count(destination) > 0

    def _target(self, record: DeadLetterRecord, redrive: Redrive) -> Target | str:
        """Return the target of a message, or why it has none; empty if it is to stay."""
        headers = dict(record.headers)
        origin_queue = headers.get(ORIGIN_QUEUE_HEADER, b"")
        if redrive.origin_queue is not None and origin_queue != redrive.origin_queue.encode():
            return ""
        topic = redrive.destination
        if topic is None:
            name = headers.get(ORIGIN_TOPIC_HEADER, b"").decode(errors="replace")
            topic = self._producer.topic_id(name)
            if topic is None:
                return f"there is no topic {name!r}; its messages stay" if name else ""
            if redrive.only_sources and not self._producer.is_source(topic, self._hosted.view.name):
                return ""
        partition_count = self._producer.partition_count(topic)
        if not partition_count:
            return LOST_DESTINATION
        origin = headers.get(ORIGIN_PARTITION_HEADER, b"")
        is_number = origin.isdigit() and len(origin) <= _DIGITS_MAX
        number = int(origin) if is_number else self._hosted.number
        return topic, number % partition_count
