"""A disk that went back to what another leader had written is objected to as soon as it counts."""

import msgspec
import pytest

from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.cluster.replica_log import Cut, Opened, ReplicaLog, Shown
from tests.simulation.cluster.replication_checkers import LogsMatch

PLACE = (bytes(16), 0)
LOG = ReplicaLog(9, 9, ((1, 0), (2, 6)))
GONE_BACK = ReplicaLog(9, 9, ((1, 0), (2, 5)))
COUNTED_ON = Shown(PLACE, (2, 1), 5, 1, [1, 2], {1: GONE_BACK, 2: LOG}, is_durable=True)
NOT_COUNTED_ON = msgspec.structs.replace(COUNTED_ON, must_have_all=[2])


@pytest.fixture
def checker() -> LogsMatch:
    checker = LogsMatch()
    checker.opened(Opened(1, PLACE, GONE_BACK, LOG))
    return checker


def test_as_long_as_nobody_counts_on_it_it_may_differ(checker: LogsMatch) -> None:
    checker.shown(NOT_COUNTED_ON)


def test_who_is_counted_on_must_match(checker: LogsMatch) -> None:
    with pytest.raises(ViolationError, match="on node 2"):
        checker.shown(COUNTED_ON)


def test_who_has_been_told_must_match(checker: LogsMatch) -> None:
    checker.cut(Cut(1, PLACE, 5, 6))

    with pytest.raises(ViolationError):
        checker.shown(NOT_COUNTED_ON)


def test_what_was_so_before_the_process_began_must_match(checker: LogsMatch) -> None:
    checker.opened(Opened(1, PLACE, GONE_BACK, GONE_BACK))

    with pytest.raises(ViolationError):
        checker.shown(NOT_COUNTED_ON)
