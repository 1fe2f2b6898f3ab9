"""Errors of the Raft core, grouped by what the caller can do about them.

Pure: no clock, no I/O.

    ProposalRefusedError                  nothing was appended
    ├── NotRaftLeaderError                ask the leader
    ├── UncommittedLimitError             wait until something is committed, then try again
    ├── LeadershipMovingError             wait for the next leader, then ask it
    ├── PayloadTooLargeError              can never succeed
    └── MembershipRefusedError            the message says whether waiting helps
    DamagedLogError                       the stored state cannot be a Raft log
    ImpossibleMessageError                no correct node sends this message now
"""

from typing import final

from tidelog.wire.errors import InvalidRequestError, TidelogError


class ProposalRefusedError(TidelogError):
    """Nothing was appended, and the proposal will never be committed."""


@final
class NotRaftLeaderError(ProposalRefusedError):
    """This node does not lead; the message names the leader if one is known."""


@final
class UncommittedLimitError(ProposalRefusedError):
    """Too many bytes are appended and not yet committed."""


@final
class LeadershipMovingError(ProposalRefusedError):
    """Leadership is being handed to another node."""


@final
class PayloadTooLargeError(ProposalRefusedError):
    """The entry exceeds the limit for one entry."""


@final
class MembershipRefusedError(ProposalRefusedError):
    """This change of the membership is not possible, or not yet."""


@final
class DamagedLogError(TidelogError):
    """The stored state cannot be a Raft log: the node must not vote any more.

    Start it with `is_damaged`, or under a new disk id without state; never with the remains.
    """


@final
class ImpossibleMessageError(InvalidRequestError):
    """No correct node sends this message in this state; it changes nothing."""
