"""Limits of one partition's log.

Pure: declarations.
"""

from dataclasses import dataclass

from tidelog.wire.errors import PartitionFullError, RecordTooLargeError

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB
SEGMENT_BYTES_LIMIT = 2 * GiB
"""Positions in an index are 32 bits wide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """How one log is cut into segments, kept and recovered."""

    segment_bytes: int = 256 * MiB
    """Roll to a new segment before this size would be passed. Smaller segments make retention
    finer, larger ones need fewer files."""

    segment_ms: int = 7 * 24 * 3600 * 1000
    """Roll a segment this long after its first append, so that retention can reach it."""

    index_interval_bytes: int = 4 * KiB
    """Distance of index entries. A read may begin this much too early."""

    max_message_bytes: int = 1 * MiB
    """Larger batches are refused before a byte is written."""

    max_partition_bytes: int | None = None
    """Refuse a batch before the segments would take more than this together; `None` never does."""

    retention_ms: int | None = 7 * 24 * 3600 * 1000
    """Delete segments whose newest record is older; `None` keeps them."""

    retention_bytes: int | None = None
    """Delete the oldest segments while the log is larger than this; `None` keeps them."""

    checkpoint_bytes: int = 64 * MiB
    """Write a checkpoint after so many bytes; a start after a crash scans at most about that."""

    producer_expiry_ms: int = 24 * 3600 * 1000
    """Forget the sequences of a producer that was silent for so long."""

    def __post_init__(self) -> None:
        """Check the relations between settings."""
        assert 0 < self.segment_bytes <= SEGMENT_BYTES_LIMIT
        assert 0 < self.index_interval_bytes <= self.segment_bytes
        assert self.max_message_bytes <= SEGMENT_BYTES_LIMIT
        assert self.retention_ms is None or self.retention_ms > 0
        assert self.retention_bytes is None or self.retention_bytes >= 0
        assert self.max_partition_bytes is None or self.max_partition_bytes > 0

    def require_size(self, size_bytes: int) -> None:
        """Check that a batch is not too large.

        Raises:
            RecordTooLargeError: It is.
        """
        if size_bytes > self.max_message_bytes:
            raise RecordTooLargeError(
                f"a batch of {size_bytes} bytes is larger than this topic's limit of"
                f" {self.max_message_bytes} bytes (max_message_bytes)",
                size_bytes=size_bytes,
                limit_bytes=self.max_message_bytes,
            )

    def require_room(self, size_bytes: int, log_bytes: int) -> None:
        """Check that a log of `log_bytes` may grow by so much.

        Raises:
            PartitionFullError: It may not.
        """
        limit = self.max_partition_bytes
        if limit is not None and log_bytes + size_bytes > limit:
            raise PartitionFullError(
                f"the partition takes {log_bytes} bytes, and {size_bytes} more would be above this"
                f" topic's limit of {limit} bytes (max_partition_bytes); there is room when"
                " retention or `tidelog topic delete-records` has freed some"
            )

    @property
    def roll_after_ms(self) -> int:
        """Age at which the active segment is rolled: retention must be able to reach it."""
        if self.retention_ms is None:
            return self.segment_ms
        return min(self.segment_ms, self.retention_ms)
