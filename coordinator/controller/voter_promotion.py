"""The choice of voters among a cluster's members: an odd number, up to five.

Pure: no clock, no I/O. Brokers join as learners; this module decides which of them become voters.
An even number of voters survives no more failures than the odd number below it, and needs one more
of them to agree.
"""

from collections.abc import Collection
from typing import Final

from tidelog.coordinator.raft.membership import Membership
from tidelog.coordinator.raft.ready import Promote

VOTER_COUNT_MAX: Final = 5
"""More voters make every decision slower; five survive the loss of two."""


def next_promotion(membership: Membership, live: Collection[int]) -> Promote | None:
    """Return the next promotion to a voter, `None` without one.

    Args:
        membership: The membership in force; it allows one change at a time.
        live: Node ids of brokers that are not fenced; the vote of other nodes does not help.
    """
    learners = [learner for learner in membership.learners if learner.node_id in live]
    member_count = len(membership.voters) + len(learners)
    wanted = min(member_count - (1 - member_count % 2), VOTER_COUNT_MAX)
    if not learners or len(membership.voters) >= wanted:
        return None
    return Promote(learners[0].node_id)
