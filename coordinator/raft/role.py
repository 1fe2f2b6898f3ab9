"""The role of a node; `coordinator.raft.core` shows the transitions between roles."""

from enum import Enum


class Role(Enum):
    """The current role of a node."""

    FOLLOWER = "follower"
    """Also the role of learners, and of nodes that are no members."""
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"
