"""Settings and statistics of processors.

Pure: declarations.
"""

from dataclasses import dataclass
from typing import Final, TypedDict, final

from tidelog.client.config import OffsetReset
from tidelog.wire.errors import ConfigError

_TIMEOUT_MIN: Final = 1.0
_TIMEOUT_MAX: Final = 24 * 3600.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorConfig:
    """Settings of a processor."""

    commit_interval: float = 0.1
    """Seconds from the first record to the commit of its output, with which the output becomes
    visible. A commit takes some time itself; the records of meanwhile are in the next one."""

    max_records: int = 10_000
    """Input or output records of one partition at which a commit does not wait any longer. While
    one is in flight, the output of four times as many may wait for the next."""

    batch: bool = False
    """Whether the transform takes a list of records of one partition, instead of one record."""

    dead_letter_topic: str | None = None
    """Topic for records whose transform raises an exception: the record goes there in the same
    transaction, and the processor goes on. Without it, the processor stops with the exception."""

    auto_offset_reset: OffsetReset | None = "earliest"
    """Where to start in a partition without a position. With `None`, `run` raises
    `NoPositionError`."""

    until_end: bool = False
    """Whether to return when all records that exist at the start are processed."""

    transaction_timeout: float = 60.0
    """Seconds after which the cluster drops the output of a processor that died; 1 s to 24 h."""

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            ConfigError: The message lists every problem.
        """
        problems = {
            "commit_interval must not be negative": self.commit_interval < 0,
            "max_records must be above 0": self.max_records <= 0,
            "dead_letter_topic must not be empty": self.dead_letter_topic == "",
            "transaction_timeout is from 1 s to 24 h": (
                not _TIMEOUT_MIN <= self.transaction_timeout <= _TIMEOUT_MAX
            ),
        }
        found = [problem for problem, is_there in problems.items() if is_there]
        if found:
            raise ConfigError(f"processor: {'; '.join(found)}")


class ProcessorSettings(TypedDict, total=False):
    """The fields of `ProcessorConfig`, as keywords."""

    commit_interval: float
    max_records: int
    batch: bool
    dead_letter_topic: str | None
    auto_offset_reset: OffsetReset | None
    until_end: bool
    transaction_timeout: float


@final
@dataclass(slots=True)
class ProcessorStatistics:
    """Counters of a processor: committed transactions, and their records."""

    input_count: int = 0
    """Input records whose output is visible. A commit whose reply was lost may be missing here."""
    output_count: int = 0
    """Output records, dead letters included."""
    dead_letter_count: int = 0
    """Input records that went to the dead-letter topic."""
    transaction_count: int = 0
    """Committed transactions."""
    restart_count: int = 0
    """Transactions that were dropped, because another owner had taken over the partition or brokers
    did not answer; their input was read again, or belongs to the other owner."""
