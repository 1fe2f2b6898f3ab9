"""Limits of one partition's log.

Pure: declarations.
"""

from dataclasses import dataclass, field

from tidelog.wire.errors import PartitionFullError, RecordTooLargeError

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB
SEGMENT_BYTES_LIMIT = 2 * GiB
"""Positions in an index are 32 bits wide."""
SEGMENTS_RETAINED = 4
"""Minimum number of full segments in `retention_bytes`."""
SMALLEST_ROLL_BYTES = 256 * KiB
"""Size up to which a segment grows under any `retention_bytes`, unless `segment_bytes` is less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of one log: segments, retention, recovery."""

    segment_bytes: int = 256 * MiB
    """Maximum size of a segment. Smaller segments make retention finer, larger segments need fewer
    files. The log rolls at `roll_bytes`, which may be less."""

    segment_ms: int = 7 * 24 * 3600 * 1000
    """Maximum age of the active segment since its first append, so that retention can reach it."""

    index_interval_bytes: int = 4 * KiB
    """Distance of index entries. A read may begin this many bytes too early."""

    max_message_bytes: int = 1 * MiB
    """Maximum size of a batch; a larger batch is refused before a write."""

    max_partition_bytes: int | None = None
    """Maximum size of all segments, above which batches are refused; `None` for no limit."""

    retention_ms: int | None = 7 * 24 * 3600 * 1000
    """Maximum age of a segment's newest record before deletion; `None` for no limit."""

    retention_bytes: int | None = None
    """Bytes that remain when the oldest segments are deleted; `None` for no limit. Less than one
    segment of `roll_bytes` remains beyond them."""

    checkpoint_bytes: int = 64 * MiB
    """Bytes between checkpoints; a start after a crash scans about that much at most."""

    producer_expiry_ms: int = 24 * 3600 * 1000
    """Time after the last append at which the log forgets a producer."""

    roll_bytes: int = field(init=False, repr=False, compare=False)
    """Size above which the active segment rolls, so that retention by size can reach it. It follows
    from the settings."""

    def __post_init__(self) -> None:
        """Check the relations between settings."""
        assert 0 < self.segment_bytes <= SEGMENT_BYTES_LIMIT
        assert 0 < self.index_interval_bytes <= self.segment_bytes
        assert self.max_message_bytes <= SEGMENT_BYTES_LIMIT
        assert self.retention_ms is None or self.retention_ms > 0
        assert self.retention_bytes is None or self.retention_bytes >= 0
        assert self.max_partition_bytes is None or self.max_partition_bytes > 0
        roll_bytes = self.segment_bytes
        if self.retention_bytes is not None:
            fraction = self.retention_bytes // SEGMENTS_RETAINED
            roll_bytes = min(roll_bytes, max(fraction, SMALLEST_ROLL_BYTES))
        object.__setattr__(self, "roll_bytes", roll_bytes)

    def too_large(self, size_bytes: int) -> RecordTooLargeError:
        """Return the error for a batch above `max_message_bytes`."""
        return RecordTooLargeError(
            f"a batch of {size_bytes} bytes is larger than this topic's limit of"
            f" {self.max_message_bytes} bytes (max_message_bytes)",
            size_bytes=size_bytes,
            limit_bytes=self.max_message_bytes,
        )

    def require_room(self, size_bytes: int, log_bytes: int) -> None:
        """Check that a log of `log_bytes` may grow by `size_bytes`.

        Raises:
            PartitionFullError: The log would exceed `max_partition_bytes`.
        """
        limit = self.max_partition_bytes
        if limit is not None and log_bytes + size_bytes > limit:
            raise PartitionFullError(
                f"the partition has {log_bytes} bytes, and {size_bytes} more would exceed this"
                f" topic's limit of {limit} bytes (max_partition_bytes); wait for retention, or"
                " delete the oldest records"
            )

    @property
    def roll_after_ms(self) -> int:
        """Age at which the active segment rolls, so that retention can reach it."""
        if self.retention_ms is None:
            return self.segment_ms
        return min(self.segment_ms, self.retention_ms)
