"""Leader epochs of the records that a reader of one partition has read.

Pure: no clock, no I/O. KIP-320: a fetch and a committed offset name the leader epoch of the last
record below. The broker compares it with its log, and so finds that records were lost.
"""

from collections.abc import Iterable
from typing import final

from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import LogTruncatedError

_KEPT_MAX = 16
"""Latest epochs that are kept; each costs a change of the leader."""


@final
class ReadEpochs:
    """Leader epochs with the offset of the first record that was read of each.

    Invariant: both columns grow strictly, and all offsets are below `end`.
    """

    def __init__(self) -> None:
        """Start without records."""
        self.end = 0
        """Offset after the last record that was read."""
        self._entries: list[tuple[int, int]] = []

    def restart(self, offset: int, leader_epoch: int | None = None) -> None:
        """Begin to read at `offset`; `leader_epoch` wrote the record below it, if that is known."""
        is_known = leader_epoch is not None and offset > 0
        self._entries = (
            [(leader_epoch, offset - 1)] if is_known and leader_epoch is not None else []
        )
        self.end = offset

    def read(self, epochs: Iterable[tuple[int, int]], end: int) -> None:
        """Add records up to `end`, with the epochs and base offsets of their first batches."""
        for epoch, offset in epochs:
            latest, start = self._entries[-1] if self._entries else (-1, -1)
            if epoch < latest:  # Another log than before: an old broker does not compare.
                self._entries = [(epoch, offset)]
            elif epoch > latest:
                self._entries.append((epoch, max(offset, start + 1)))
        del self._entries[:-_KEPT_MAX]
        self.end = end

    def cut(self, end: int) -> None:
        """Remove the records from `end` on."""
        while self._entries and self._entries[-1][1] >= end:
            self._entries.pop()
        self.end = min(self.end, end)

    def before(self, offset: int) -> int | None:
        """Return the leader epoch of the last record below `offset`, `None` if not known."""
        if offset <= self.end:
            for epoch, start in reversed(self._entries):
                if start < offset:
                    return epoch
        return None

    def located(self, tp: TopicPartition, error: LogTruncatedError) -> LogTruncatedError:
        """Return the error with the partition's name, and the first offset that is known lost.

        The broker knows the last epoch only. All records of epochs that its log lacks are lost.
        """
        truncated_to, fetch_offset = error.truncated_to, error.fetch_offset
        if truncated_to is None or fetch_offset is None:
            return error
        kept = -1 if error.leader_epoch is None else error.leader_epoch
        foreign = [start for epoch, start in self._entries if epoch > kept]
        first = min(truncated_to, *foreign) if foreign else truncated_to
        found = LogTruncatedError(
            f"{tp.topic}/{tp.partition}: {fetch_offset - first} offsets, {first} to"
            f" {fetch_offset} (exclusive), were read and are lost: the leader's log has other"
            f" records there, or ends; seek to {first} to read on with the present records",
            **{**error.to_wire().details, "truncated_to": first},
        )
        found.at = tp
        return found
