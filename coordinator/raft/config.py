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
    """A leader lets its followers hear of it so often."""

    election_ticks: int = 10
    """A follower that hears of no leader for this long, and up to twice as long by chance,
    campaigns; a leader that does not hear of a majority for this long steps down. Ten times
    the heartbeat at least lets a few of them be lost."""

    max_write_ticks: int = 50
    """A leader whose disk takes so long for a write lets another voter lead: nothing can be applied
    here meanwhile, although the others go on committing. It does not campaign before the disk
    answers. A disk that is full counts as one that does not answer."""

    max_append_bytes: int = 1 * MiB
    """Entries in one message; one entry always fits."""

    max_append_entries: int = 1024
    """Entries in one message."""

    max_inflight_messages: int = 64
    """Messages with entries that one follower has not answered yet."""

    max_inflight_bytes: int = 8 * MiB
    """Bytes of entries that one follower has not answered yet; one message may always go."""

    max_payload_bytes: int = 8 * MiB
    """One entry: what changes for some 200,000 partitions when one broker comes or goes."""

    max_uncommitted_bytes: int = 16 * MiB
    """What a leader appends before anything of it is committed; more is refused, so that a leader
    without a majority does not fill its memory."""

    max_unsynced_bytes: int = 64 * MiB
    """Entries in memory that the own disk does not have; with more a node takes none, so that a
    disk that is full or hangs does not fill its memory. Each gets what it lacks when it answers."""

    max_committed_bytes: int = 4 * MiB
    """What is handed to the state machine at once; one entry always is."""

    snapshot_ticks: int = 600
    """A follower that has not taken a snapshot by then is asked again how far it is."""

    max_promotion_lag_entries: int = 1000
    """A learner that is further behind is not made a voter: it could not help to commit."""

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
