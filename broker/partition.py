"""One partition that this broker leads: its log, what is committed, and who waits for it.

Plain calls only: nothing here awaits, so nothing comes between a decision and its effect.
"""

import heapq
from itertools import count
from typing import Protocol, final

from coordinator.topic_config import TopicConfig
from isr.leader import PartitionLeader
from logstore.log import PartitionLog
from wire.errors import BrokerError, LogOfflineError
from wire.produce import Acks


class AckWaiter(Protocol):
    """A produce that waits for records to be acknowledged."""

    def acknowledged(self, index: int, error: BrokerError | None) -> None:
        """The batch at `index` of the request is acknowledged, or never will be."""
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
        self, topic_id: bytes, number: int, log: PartitionLog, config: TopicConfig
    ) -> None:
        """Lead the partition whose log is `log`."""
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
        self.flushes_begun = 0
        self.flushes_ended = 0
        self._ticket = count()
        self._ack_waiters: dict[Acks, list[tuple[int, int, AckWaiter, int]]] = {
            Acks.LEADER: [],
            Acks.ALL: [],
        }
        self._data_waiters: dict[DataWaiter, None] = {}

    @property
    def high_watermark(self) -> int:
        """First offset that is not committed (exclusive end)."""
        return self.leader.high_watermark

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
        log = self.log
        before = self.leader.high_watermark
        self.leader.progressed(
            log_end_offset=log.log_end_offset, durable_end_offset=log.durable_end_offset
        )
        for acks, waiters in self._ack_waiters.items():
            if waiters:
                acknowledged = self.leader.acknowledged_offset(acks)
                while waiters and waiters[0][0] <= acknowledged:
                    _, _, waiter, index = heapq.heappop(waiters)
                    waiter.acknowledged(index, None)
        if self._data_waiters and self.leader.high_watermark > before:
            self.wake_fetches()

    def wake_fetches(self) -> None:
        """Let waiting fetches look again."""
        waiters, self._data_waiters = self._data_waiters, {}
        for waiter in waiters:
            waiter.wake()

    def failed(self, error: LogOfflineError | BrokerError) -> None:
        """Tell everybody that waits that it is in vain."""
        for waiters in self._ack_waiters.values():
            while waiters:
                _, _, waiter, index = heapq.heappop(waiters)
                waiter.acknowledged(index, error)
        self.wake_fetches()
