"""Quarantine of unreadable messages: others are delivered; in a FIFO queue, other groups only."""

from collections.abc import Callable
from typing import final

from tidelog.broker.partitions.partition import Partition
from tidelog.broker.queues.partition.gathered import Gathered
from tidelog.broker.queues.partition.source_records import SourceRecords
from tidelog.queue_layer.commands.receive import ReceivePlan
from tidelog.queue_layer.outcome import Outcome
from tidelog.queue_layer.queue_partition import QueuePartition
from tidelog.wire.env.env import Probe
from tidelog.wire.errors import BrokerError, CorruptRecordError


@final
class Quarantine:
    """Unreadable messages of one partition of a queue, and their reports to the operator.

    Invariant: in a group with an unreadable message, no message behind it is delivered.
    """

    def __init__(
        self, core: QueuePartition, probe: Probe, decide: Callable[[Outcome[None]], None]
    ) -> None:
        """Start without messages; `probe` reports each range that is found.

        `decide` carries out decisions of `core`.
        """
        self._decide = decide
        self._core = core
        self._probe = probe
        self.held: list[tuple[int, int]] = []
        """First offsets and ends of the quarantined ranges; to be read only."""
        self._error: CorruptRecordError | None = None
        """Error of a quarantined range."""

    def hold(self, plan: ReceivePlan, gathered: Gathered, *, now_ms: int) -> bool:
        """Quarantine the unreadable messages of a plan; of a FIFO queue only if they came first.

        Messages whose data key was deleted are removed.

        Return whether another plan may have messages, since this one had none.
        """
        for first, end in gathered.destroyed:
            self._decide(self._core.destroy(first, end, now_ms=now_ms))
        if gathered.destroyed:
            return True
        is_in_order = self._core.config.is_fifo
        if plan.attempt is not None or (is_in_order and gathered.taken):
            return False
        for first, end, error in gathered.unreadable:
            self._core.state.quarantine(first, end)
            # The same range may be found from another message on.
            known = [held for held in self.held if held[0] < end and first < held[1]]
            if not known:
                self._probe("messages_unreadable", severity="error", reason=str(error))
            known.append((first, end))
            self.held = [held for held in self.held if held not in known]
            self.held.append((min(known)[0], max(held_end for _, held_end in known)))
            self._error = error
        return bool(gathered.unreadable) and not gathered.taken

    def release_repaired(self, records: SourceRecords) -> None:
        """Release messages that are not known to be damaged any more.

        Raises:
            LeaderNotAvailableError: This broker has no replica of the log.
        """
        if not self.held:
            return
        damage = records.partition().log.damage
        for first, end in list(self.held):
            if not any(each.offset < end and first < each.end_offset for each in damage):
                self.held.remove((first, end))
                self._core.state.end_quarantine(first, end)
        if not self.held:
            self._error = None

    def require_none(self, partition: Partition) -> None:
        """Raise if messages are quarantined; called when there are no others.

        Raises:
            CorruptRecordError: Messages are quarantined.
            BrokerError: The same, and another replica may have the records.
        """
        if self._error is not None:
            error: BrokerError = partition.passing(self._error)
            raise error
