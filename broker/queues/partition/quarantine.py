"""Messages that cannot be read: others go on; of a FIFO queue, those of other groups."""

from typing import final

from tidelog.broker.partitions.partition import Partition
from tidelog.broker.queues.partition.source_records import Gathered, SourceRecords
from tidelog.queue_layer.commands.receive import ReceivePlan
from tidelog.queue_layer.queue_partition import QueuePartition
from tidelog.wire.env.env import Probe
from tidelog.wire.errors import BrokerError, CorruptRecordError


@final
class Quarantine:
    """Those of one partition of a queue, and what the operator is told of them.

    Invariant: of a group with an unreadable message nothing is handed out that stands behind it.
    """

    def __init__(self, core: QueuePartition, queue: str, probe: Probe) -> None:
        """Know of none; the operator is told of each stretch that is found."""
        self._core = core
        self._queue = queue
        self._probe = probe
        self._held: list[tuple[int, int]] = []
        self._error: CorruptRecordError | None = None
        """Why some are held."""

    def hold(self, plan: ReceivePlan, gathered: Gathered) -> bool:
        """Hold what a plan offered and nobody can read; of a FIFO queue if it came first.

        Returns whether there may be something else to offer, for there was nothing.
        """
        is_in_order = self._core.config.is_fifo
        if plan.attempt is not None or (is_in_order and gathered.taken):
            return False
        for first, end, error in gathered.unreadable:
            self._core.state.quarantine(first, end)
            # Each time it may be found from another message on.
            known = [held for held in self._held if held[0] < end and first < held[1]]
            if not known:
                self._probe(
                    "messages_unreadable", severity="error", queue=self._queue, reason=str(error)
                )
            known.append((first, end))
            self._held = [held for held in self._held if held not in known]
            self._held.append((min(known)[0], max(held_end for _, held_end in known)))
            self._error = error
        return bool(gathered.unreadable) and not gathered.taken

    def release_repaired(self, records: SourceRecords) -> None:
        """Release messages that are not known to be damaged any more.

        Raises:
            LeaderNotAvailableError: The log is not here.
        """
        if not self._held:
            return
        damage = records.partition().log.damage
        for first, end in list(self._held):
            if not any(each.offset < end and first < each.end_offset for each in damage):
                self._held.remove((first, end))
                self._core.state.end_quarantine(first, end)
        if not self._held:
            self._error = None

    def require_none(self, partition: Partition) -> None:
        """Check that nothing is held, when there is nothing else.

        Raises:
            CorruptRecordError: Something is.
            BrokerError: The same, and another replica may have it.
        """
        if self._error is not None:
            error: BrokerError = partition.passing(self._error)
            raise error
