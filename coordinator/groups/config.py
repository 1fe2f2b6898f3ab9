"""Settings of consumer groups, the same on every coordinator.

Pure: declarations.
"""

from dataclasses import dataclass
from typing import final

from tidelog.wire.errors import ConfigError


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Times and limits of consumer groups; `docs/groups.md` explains how they work together."""

    heartbeat_interval_ms: int = 5_000
    """Interval of members' heartbeats. It bounds how late they learn of a new assignment."""

    waiting_interval_ms: int = 1_000
    """The same for members that wait for their first partitions, or during a reconciliation."""

    session_timeout_ms: int = 45_000
    """A member that is silent for so long is fenced, and others read its partitions."""

    lease_margin_ms: int = 5_000
    """Members stop to deliver records so much before their session ends, so that a coordinator that
    does not know of its replacement cannot promise too much."""

    max_poll_interval_ms: int = 1_800_000
    """An application that works without a pause for so long is treated as stuck. Its member is
    fenced although it sends heartbeats."""

    max_rebalance_timeout_ms: int = 1_800_000
    """Maximum of a member's time to revoke partitions."""

    initial_rebalance_delay_ms: int = 3_000
    """The first member of an empty group waits so long for others. So it does not get all
    partitions only to lose most of them again."""

    assignment_interval_ms: int = 5_000
    """Least time between two target assignments of a group."""

    replacement_delay_ms: int = 5_000
    """After a member has left, its partitions wait so long for a new member to replace it. Set it
    to the time of a restart in a rolling deploy."""

    max_assignment_delay_ms: int = 15_000
    """No change waits longer than this for later ones."""

    group_max_size: int = 5_000
    """Maximum number of members of one group."""

    offset_metadata_max_bytes: int = 4_096
    """Maximum size of the metadata of a committed offset, in UTF-8."""

    offsets_retention_ms: int = 7 * 86_400_000
    """A group that is empty *and* has no lag is deleted after this time."""

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
