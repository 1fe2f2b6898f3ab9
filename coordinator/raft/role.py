"""What a node is; `coordinator.raft.core` shows what moves it from one role to another."""

from enum import Enum


class Role(Enum):
    """What a node is at the moment."""

    FOLLOWER = "follower"
    """Also the role of learners, and of nodes that are no members."""
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"
