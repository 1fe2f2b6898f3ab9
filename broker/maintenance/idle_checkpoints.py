"""Checkpoints of logs that have fallen idle.

Shell: owns one task, which waits for events while no log was flushed lately. Until the next
checkpoint of a log nothing proves that its last records were durable: a start takes damage there
for a torn tail, and truncates it. The checkpoint of an idle log makes it damage, and keeps the high
watermark for a follower that must not truncate below it.
"""

from collections.abc import Callable
from typing import Final, final

import trio

from tidelog.broker.partitions.partition import Partition
from tidelog.wire.env.loop_clock import loop_clock

IDLE_S: Final = 1.0
"""Time in seconds since the last flush after which a log counts as idle. By then a follower knows
the high watermark of its last records."""
_ROUND_S: Final = 0.25
_AT_ONCE: Final = 50
"""Maximum number of checkpoints in a round: a thousand logs that fall idle together take 5 s."""


@final
class IdleCheckpoints:
    """Logs that were flushed and have no checkpoint of that yet.

    Invariant: a log whose checkpoint is behind is here from its last flush on, unless none of its
    records is needed. Logs are in the order of their last flush, so a round looks only at those
    that are due.
    """

    def __init__(self, request_flush: Callable[[Partition], None]) -> None:
        """Start without logs; `request_flush` starts the flush that writes a checkpoint."""
        self._request_flush = request_flush
        self.is_unneeded: Callable[[Partition], bool] = _is_never_unneeded
        """Returns whether all records of a log are soon deleted, so that it needs no checkpoint."""
        self._flushed_at: dict[Partition, float] = {}
        self._has_logs = trio.Event()
        self._now_s = loop_clock()

    def flushed(self, partition: Partition) -> None:
        """Wait from now on until this log is idle."""
        self._flushed_at.pop(partition, None)
        self._flushed_at[partition] = self._now_s()
        if len(self._flushed_at) == 1:
            self._has_logs.set()

    def forget(self, partition: Partition) -> None:
        """Forget a log that is about to be closed."""
        self._flushed_at.pop(partition, None)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            if not self._flushed_at:
                self._has_logs = trio.Event()
                await self._has_logs.wait()
            await trio.sleep(_ROUND_S)
            self.write_due()

    def write_due(self) -> None:
        """Request the checkpoints of logs that have fallen idle."""
        due: list[Partition] = []
        idle_since = self._now_s() - IDLE_S
        for partition, flushed_at in self._flushed_at.items():
            if flushed_at > idle_since or len(due) == _AT_ONCE:
                break
            due.append(partition)
        for partition in due:
            del self._flushed_at[partition]
            log = partition.log
            if log.durable_end_offset < log.log_end_offset:
                continue  # The flush that follows brings it back.
            if log.is_checkpoint_behind:
                if self.is_unneeded(partition):
                    continue
                log.request_checkpoint()
                self._request_flush(partition)
            elif log.high_watermark < log.log_end_offset:
                self.flushed(partition)  # Its last records may be committed at any time.


def _is_never_unneeded(partition: Partition) -> bool:
    del partition
    return False
