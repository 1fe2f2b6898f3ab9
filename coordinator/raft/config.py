"""Settings of the Raft core.

Pure: no clock, no I/O.
"""

from dataclasses import dataclass
from typing import Final, final

from tidelog.wire.errors import ConfigError

KiB: Final = 1024
MiB: Final = 1024 * KiB


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """Times are in ticks; the shell ticks every 100 ms. All nodes of a cluster use the same."""

    heartbeat_ticks: int = 1
    """Ticks between two heartbeats of a leader."""

    election_ticks: int = 10
    """A follower that hears of no leader for this long, and up to twice as long by chance,
    campaigns. A leader that does not hear of a majority for this long steps down. With at least ten
    times the heartbeat, a few heartbeats may be lost."""

    max_write_ticks: int = 50
    """A leader whose disk takes so long for a write lets another voter lead. Meanwhile nothing can
    be applied here, although the others go on committing. It does not campaign before the disk
    answers. A full disk counts as one that does not answer."""

    max_append_bytes: int = 1 * MiB
    """Bytes of entries in one message; one entry always fits."""

    max_append_entries: int = 1024
    """Entries in one message."""

    max_inflight_messages: int = 64
    """Messages with entries that one follower has not answered yet."""

    max_inflight_bytes: int = 8 * MiB
    """Bytes of entries that one follower has not answered yet; one message may always go."""

    max_payload_bytes: int = 8 * MiB
    """Bytes of one entry: the changes of some 200,000 partitions when a broker joins or leaves."""

    max_uncommitted_bytes: int = 16 * MiB
    """Entries that a leader appends before any of them is committed. More are refused, so that a
    leader without a majority does not fill its memory."""

    max_unsynced_bytes: int = 64 * MiB
    """Entries in memory that this node's disk does not have. With more, a node accepts none, so
    that a disk that is full or hangs does not fill its memory. Each follower gets the missing
    entries when it answers."""

    max_committed_bytes: int = 4 * MiB
    """Bytes of entries that the state machine gets at once; at least one entry."""

    snapshot_ticks: int = 600
    """A follower that has not installed a snapshot by then is probed again."""

    max_promotion_lag_entries: int = 1000
    """A learner that is further behind is not promoted: it could not help to commit."""

    def __post_init__(self) -> None:
        problems = [
            f"{name} is {getattr(self, name)} and must be at least 1"
            for name in self.__dataclass_fields__
            if getattr(self, name) < 1
        ]
        if self.election_ticks <= self.heartbeat_ticks:
            problems.append(
                f"election_ticks is {self.election_ticks} and must be more than heartbeat_ticks,"
                f" {self.heartbeat_ticks}: ten times as much is good"
            )
        if problems:
            raise ConfigError("; ".join(problems))
