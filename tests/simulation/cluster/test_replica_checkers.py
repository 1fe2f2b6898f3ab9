"""What leaders ask for and append, and what followers cut off."""

import pytest

from tests.simulation.checkers.book import ViolationError
from tests.simulation.cluster.replica_log import Asked, Cut, Joined, ReplicaLog, Waits
from tests.simulation.cluster.replication_promises import (
    CommittedIsNotCut,
    JoinersAreKnown,
    JoinersHaveAll,
    TooFewIsSaid,
)

PLACE = (b"t" * 16, 0)


def asked(high_watermark: int, joiner: ReplicaLog, *, is_durable: bool = True) -> Asked:
    return Asked(1, PLACE, [2], [(2, 7)], high_watermark, {2: joiner}, is_durable)


def test_what_is_not_known_to_be_committed_may_be_cut_off() -> None:
    checker = CommittedIsNotCut()

    checker.cut(Cut(1, PLACE, 5, 5))
    checker.cut(Cut(1, PLACE, 7, 5))
    with pytest.raises(ViolationError, match=r"removes .* from 4 on, and takes it for committed"):
        checker.cut(Cut(1, PLACE, 4, 5))


def test_nothing_is_appended_that_waits_for_too_few() -> None:
    checker = TooFewIsSaid()

    checker.waits(Waits(1, PLACE, has_enough=True))
    with pytest.raises(ViolationError, match="too few are in sync"):
        checker.waits(Waits(1, PLACE, has_enough=False))


def test_who_has_all_that_is_committed_may_be_asked_for() -> None:
    checker = JoinersHaveAll()

    checker.asked(asked(5, ReplicaLog(9, 5)))
    checker.asked(asked(5, ReplicaLog(5, 4), is_durable=False))
    checker.asked(Asked(1, PLACE, [2], [(2, 7)], 5, {}))


@pytest.mark.parametrize("joiner", [ReplicaLog(4, 4), ReplicaLog(5, 4), ReplicaLog(0, 0)])
def test_who_lacks_something_may_not(joiner: ReplicaLog) -> None:
    checker = JoinersHaveAll()

    with pytest.raises(ViolationError, match=r"asks for node 2 .* and 5 is committed"):
        checker.asked(asked(5, joiner))


def test_who_joins_is_the_process_that_a_leader_asked_for() -> None:
    checker = JoinersAreKnown()

    checker.asked(asked(5, ReplicaLog(5, 5)))
    checker.joined(Joined(2, PLACE, 7))
    with pytest.raises(ViolationError, match="no leader asked for its process of broker epoch 8"):
        checker.joined(Joined(2, PLACE, 8))
