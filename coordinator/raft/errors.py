"""What the Raft core refuses, grouped by what the caller can do about it.

Pure: no clock, no I/O.

    ProposalRefusedError                  nothing was appended
    ├── NotRaftLeaderError                ask the leader
    ├── UncommittedLimitError             wait until something is committed, then try again
    ├── LeadershipMovingError             wait for the next leader, then ask it
    ├── PayloadTooLargeError              can never succeed
    └── MembershipRefusedError            the message says whether waiting helps
    DamagedLogError                       what the disk holds cannot be a Raft log
"""

from typing import final

from tidelog.wire.errors import TidelogError


class ProposalRefusedError(TidelogError):
    """Nothing was appended, and nothing will come of it."""


@final
class NotRaftLeaderError(ProposalRefusedError):
    """This node does not lead; the message names the leader if one is known."""


@final
class UncommittedLimitError(ProposalRefusedError):
    """Too much is appended and not yet committed."""


@final
class LeadershipMovingError(ProposalRefusedError):
    """Leadership is being handed to another node."""


@final
class PayloadTooLargeError(ProposalRefusedError):
    """One entry may not be so large."""


@final
class MembershipRefusedError(ProposalRefusedError):
    """This change of the membership is not possible, or not yet."""


@final
class DamagedLogError(TidelogError):
    """What the disk holds cannot be a Raft log: the node has lost its memory and must not vote.

    Start it with `is_damaged`, or under a new disk id with nothing; never with what is left.
    """
