"""Settings of consumer groups, the same on every coordinator.

Pure: declarations.
"""

from dataclasses import dataclass
from typing import final

from tidelog.wire.errors import ConfigError


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Times and limits of consumer groups. `docs/groups.md` explains how they work together."""

    heartbeat_interval_ms: int = 5_000
    """Members send heartbeats so often. It bounds how late they learn of a new assignment."""

    waiting_interval_ms: int = 1_000
    """The same for members that wait for their first partitions, or whose partitions change
    hands."""

    session_timeout_ms: int = 45_000
    """A member that is not heard of for so long is fenced, and others read its partitions."""

    lease_margin_ms: int = 5_000
    """Members stop to hand out records so much before their session is over, so that a coordinator
    which does not know yet that it was replaced cannot promise too much."""

    max_poll_interval_ms: int = 1_800_000
    """An application that is at work without a pause for so long is taken for stuck, and its member
    is fenced, whatever it says."""

    max_rebalance_timeout_ms: int = 1_800_000
    """Members may not ask for more time to let go of partitions."""

    initial_rebalance_delay_ms: int = 3_000
    """The first member of an empty group waits so long for others, so that the first does not get
    everything only to lose most of it again."""

    assignment_interval_ms: int = 5_000
    """The target assignment of a group is not computed more often than this."""

    replacement_delay_ms: int = 5_000
    """After a member has left, its partitions wait so long for a new member to replace it. Set it
    to what a restart takes in a rolling deploy."""

    max_assignment_delay_ms: int = 15_000
    """No change waits longer than this for others that may follow."""

    group_max_size: int = 5_000
    """Members of one group."""

    offset_metadata_max_bytes: int = 4_096
    """Size of the metadata of a committed offset, in UTF-8."""

    offsets_retention_ms: int = 7 * 86_400_000
    """A group that is empty *and* has no lag is forgotten after this time."""

    def __post_init__(self) -> None:
        """Check the settings against each other.

        Raises:
            ConfigError: The message lists every problem.
        """
        quiet_ms = 2 * self.heartbeat_interval_ms + self.lease_margin_ms
        problems = {
            "waiting_interval_ms must be above 0": self.waiting_interval_ms <= 0,
            "waiting_interval_ms must not be above heartbeat_interval_ms": (
                self.waiting_interval_ms > self.heartbeat_interval_ms
            ),
            f"session_timeout_ms must leave time for two heartbeats, {quiet_ms} or more": (
                self.session_timeout_ms < quiet_ms
            ),
            "max_poll_interval_ms must not be below session_timeout_ms": (
                self.max_poll_interval_ms < self.session_timeout_ms
            ),
            "max_assignment_delay_ms must not be below replacement_delay_ms": (
                self.max_assignment_delay_ms < self.replacement_delay_ms
            ),
        }
        found = [problem for problem, is_there in problems.items() if is_there]
        if found:
            raise ConfigError(f"consumer groups: {'; '.join(found)}")
