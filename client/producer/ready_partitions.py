"""Partitions of a producer that are ready to send, and the time of the next check.

Pure: decides, given the time; no clock, no I/O. A partition costs nothing while it is idle.
"""

import heapq
import itertools
import math
from collections.abc import Callable
from typing import TypeVar, final

from tidelog.client.producer.partition_batches import PartitionBatches

Destination = TypeVar("Destination")


@final
class ReadyPartitions:
    """Partitions by the event that they wait for.

    A partition that may have a batch to send is a candidate until its check. Then it waits for a
    reply or a record (which makes it a candidate again), for a leader that can be reached, for an
    identity, or for time to pass.
    """

    def __init__(self) -> None:
        """Start without partitions."""
        self.without_identity: dict[PartitionBatches, None] = {}
        """Partitions that waited for a producer id at their last check."""
        self.next_wake = math.inf
        """When to call `take_due`, in monotonic seconds, maybe inf."""
        self.backed_up: dict[PartitionBatches, None] = {}
        """Partitions with closed batches that `take_ready` is to check."""
        self.candidates: dict[PartitionBatches, None] = {}
        """Other partitions that it is to check, unless only full batches are wanted."""
        self._without_leader: dict[PartitionBatches, None] = {}
        self._wakes: list[tuple[float, int, PartitionBatches]] = []
        self._tie_breaker = itertools.count()

    def awaiting_producer_id(self) -> list[PartitionBatches]:
        """Return the partitions that wait for a producer id."""
        return [queue for queue in self.without_identity if queue.awaits_producer_id]

    def touch(self, queue: PartitionBatches) -> None:
        """Check this partition in the next `take_ready`, if it has batches to send."""
        if self.without_identity:
            self.without_identity.pop(queue, None)
        if queue.ready or queue.unsent:
            self.backed_up[queue] = None
        elif queue.open.deadline < math.inf:
            self.candidates[queue] = None

    def leaders_changed(self) -> None:
        """Check the partitions without a leader again."""
        queues, self._without_leader = self._without_leader, {}
        for queue in queues:
            self.touch(queue)

    def take_ready(
        self,
        now: float,
        destination_of: Callable[[PartitionBatches], Destination | None],
        *,
        only_full: bool,
        is_urgent: bool,
    ) -> dict[Destination, list[PartitionBatches]]:
        """Return partitions that are to start a batch now, by the destination to send it to.

        To be called until it returns nothing, with each partition touched after it started.

        Args:
            now: Monotonic seconds.
            destination_of: Returns the leader of a partition if it can be reached.
            only_full: Check only partitions with closed batches.
            is_urgent: Do not wait for open batches to linger.
        """
        candidates, self.backed_up = self.backed_up, {}
        if not only_full:
            candidates |= self.candidates
            self.candidates = {}
        ready: dict[Destination, list[PartitionBatches]] = {}
        for queue in candidates:
            if queue.can_send(now, only_full=only_full, is_urgent=is_urgent):
                destination = destination_of(queue)
                if destination is None:
                    self._without_leader[queue] = None
                elif destination in ready:
                    ready[destination].append(queue)
                else:
                    ready[destination] = [queue]
            elif queue.awaits_producer_id:
                self.without_identity[queue] = None
        return ready

    def plan_wake(self, queue: PartitionBatches, now: float) -> None:
        """Ensure that `take_due` returns this partition when time alone changes something.

        To be called when a batch is opened or comes back, and after `take_due`: nothing else brings
        a new time.
        """
        wakes_at = queue.next_wake(now)
        if wakes_at < queue.wakes_at:
            queue.wakes_at = wakes_at
            heapq.heappush(self._wakes, (wakes_at, next(self._tie_breaker), queue))
            self.next_wake = self._wakes[0][0]

    def take_due(self, now: float) -> list[PartitionBatches]:
        """Return the partitions with overdue work, and make them candidates."""
        due: list[PartitionBatches] = []
        while self._wakes and self._wakes[0][0] <= now:
            wakes_at, _, queue = heapq.heappop(self._wakes)
            if wakes_at == queue.wakes_at:  # Otherwise an earlier wake took its place.
                queue.wakes_at = math.inf
                self.touch(queue)
                due.append(queue)
        self.next_wake = self._wakes[0][0] if self._wakes else math.inf
        return due
