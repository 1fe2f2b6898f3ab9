"""One partition that this broker leads: its log, what is committed, and who waits for it.

Plain calls only: nothing here awaits, so nothing comes between a decision and its effect.
"""

import heapq
from itertools import count
from typing import Protocol, final

from coordinator.topic_config import TopicConfig
from isr.durability import ack_level
from isr.leader import PartitionLeader
from logstore.log import LogStatus, PartitionLog
from wire.env import Probe
from wire.errors import BrokerError, CorruptRecordError, LogOfflineError
from wire.produce import AckLevel, Acks


class AckWaiter(Protocol):
    """A produce that waits for records to be acknowledged."""

    def acknowledged(self, index: int, level: AckLevel) -> None:
        """`level` is true of the batch at `index` of the request."""
        ...

    def failed(self, index: int, error: BrokerError) -> None:
        """The batch at `index` will never be acknowledged."""
        ...


class DataWaiter(Protocol):
    """A fetch that waits for data."""

    def wake(self) -> None:
        """There may be more to read, or an error."""
        ...


@final
class Partition:
    """A partition and its waiters.

    Invariant: every waiter below what is acknowledged has been told.
    """

    def __init__(
        self, topic_id: bytes, number: int, log: PartitionLog, config: TopicConfig, probe: Probe
    ) -> None:
        """Lead the partition whose log is `log`; tell `probe` of changes of its status."""
        self._probe = probe
        self.topic_id = topic_id
        self.number = number
        self.log = log
        self.leader = PartitionLeader(
            leader_epoch=0,
            durability=config.durability,
            log_end_offset=log.log_end_offset,
            durable_end_offset=log.durable_end_offset,
        )
        self.is_flushing = False
        """Whether a flush task is under way."""
        self.is_flush_wanted = False
        """Whether a flush must begin after the one that is under way."""
        self.flushes_begun = 0
        self.flushes_ended = 0
        self._ticket = count()
        self._ack_waiters: dict[Acks, list[tuple[int, int, AckWaiter, int]]] = {
            Acks.LEADER: [],
            Acks.ALL: [],
        }
        self._data_waiters: dict[DataWaiter, None] = {}
        self._known_status = log.status

    @property
    def high_watermark(self) -> int:
        """First offset that is not committed (exclusive end)."""
        return self.leader.high_watermark

    @property
    def waiter_count(self) -> int:
        """How many batches and fetches wait here."""
        return len(self._data_waiters) + sum(map(len, self._ack_waiters.values()))

    def reconfigure(self, config: TopicConfig) -> None:
        """Let other settings be in force from now on."""
        self.log.config = config.log
        self.leader.durability = config.durability
        self.progressed()

    def wait_for_ack(self, acks: Acks, offset: int, waiter: AckWaiter, index: int) -> None:
        """Tell `waiter` when everything below `offset` is acknowledged at this level."""
        entry = (offset, next(self._ticket), waiter, index)
        heapq.heappush(self._ack_waiters[acks], entry)

    def wait_for_data(self, waiter: DataWaiter) -> None:
        """Tell `waiter` when more is committed."""
        self._data_waiters[waiter] = None

    def stop_waiting(self, waiter: DataWaiter) -> None:
        """Forget a fetch that waits no more."""
        self._data_waiters.pop(waiter, None)

    def progressed(self) -> None:
        """Look at how far the log is, and tell those who waited for it."""
        log, leader = self.log, self.leader
        before = leader.high_watermark
        leader.progressed(
            log_end_offset=log.log_end_offset, durable_end_offset=log.durable_end_offset
        )
        for acks, waiters in self._ack_waiters.items():
            if waiters:
                # As it is now: it may have been another one when they began to wait.
                level = ack_level(acks, leader.durability)
                acknowledged = leader.acknowledged_offset(acks)
                while waiters and waiters[0][0] <= acknowledged:
                    _, _, waiter, index = heapq.heappop(waiters)
                    waiter.acknowledged(index, level)
        if self._data_waiters and leader.high_watermark > before:
            self._wake_fetches()

    def damage_found(self, error: CorruptRecordError) -> None:
        """Take note of damage that a reader came upon."""
        self.log.note_damage(error)
        self.note_status(str(error))

    def reading_failed(self, error: OSError) -> LogOfflineError:
        """Take the log offline, for it cannot be read; return what to tell the reader."""
        reason = f"reading failed: {error}"
        self.log.fail(reason)
        self.note_status(reason)
        return LogOfflineError(f"{self.log.directory} is offline: {reason}")

    def note_status(self, reason: str) -> None:
        """Tell the operator, and whoever waits in vain, if the status of the log is another one.

        `reason` is of the last thing that happened to it.
        """
        status = self.log.status
        if status is self._known_status:
            return
        self._known_status = status
        self._probe(
            "log_status_changed",
            severity="info" if status is LogStatus.ONLINE else "error",
            directory=self.log.directory,
            status=status.value,
            reason=reason,
        )
        if status is LogStatus.OFFLINE:
            self.failed(
                LogOfflineError(
                    f"{self.log.directory} is offline: {reason}; restart the broker once the disk"
                    " is in order"
                )
            )

    def failed(self, error: BrokerError) -> None:
        """Tell everybody that waits that it is in vain."""
        for waiters in self._ack_waiters.values():
            while waiters:
                _, _, waiter, index = heapq.heappop(waiters)
                waiter.failed(index, error)
        self._wake_fetches()

    def _wake_fetches(self) -> None:
        waiters, self._data_waiters = self._data_waiters, {}
        for waiter in waiters:
            waiter.wake()
