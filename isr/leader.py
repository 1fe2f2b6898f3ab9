"""The leader's view of one partition: how far its in-sync replicas are, and what is committed.

Pure: no clock, no I/O. Today the leader is the only replica; followers report here later.
"""

from typing import final

from isr.durability import Durability
from wire.produce import Acks


@final
class PartitionLeader:
    """What one leader, in one leader epoch, knows of its partition.

    Invariant: the high watermark never falls, and never passes what the leader itself has.
    """

    def __init__(
        self,
        *,
        leader_epoch: int,
        durability: Durability,
        log_end_offset: int,
        durable_end_offset: int,
    ) -> None:
        """Begin to lead, with what recovery found to be on disk."""
        self.leader_epoch = leader_epoch
        self.durability = durability
        """May be changed at any time: what is committed stays committed."""
        self._log_end_offset = log_end_offset
        self._durable_end_offset = durable_end_offset
        self._high_watermark = durable_end_offset
        self._advance()

    @property
    def high_watermark(self) -> int:
        """First offset not known to be on every in-sync replica (exclusive end)."""
        return self._high_watermark

    def progressed(self, *, log_end_offset: int, durable_end_offset: int) -> None:
        """Take note of how far the leader's own log is."""
        self._log_end_offset = log_end_offset
        self._durable_end_offset = durable_end_offset
        self._advance()

    def acknowledged_offset(self, acks: Acks) -> int:
        """Return the offset below which `ack_level(acks, durability)` is true of all records.

        May be lower than the high watermark for a while: what was committed in memory is not on
        disk at once when the durability becomes `FSYNC`.
        """
        return self._everywhere() if acks is Acks.ALL else self._position()

    def _position(self) -> int:
        if self.durability is Durability.FSYNC:
            return self._durable_end_offset
        return self._log_end_offset

    def _everywhere(self) -> int:
        # The minimum over the in-sync replicas, of which the leader is the only one.
        return self._position()

    def _advance(self) -> None:
        self._high_watermark = max(self._high_watermark, self._everywhere())
