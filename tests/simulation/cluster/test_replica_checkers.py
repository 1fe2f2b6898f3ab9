"""Tests of replica checkers: proposals and appends of leaders, losses of followers and disks."""

import msgspec
import pytest

from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.cluster.cluster_history import ClusterHistory
from tests.simulation.cluster.replica_log import (
    Asked,
    Cut,
    Joined,
    Lost,
    Opened,
    ReplicaLog,
    Shown,
    ToldEnd,
    Waits,
)
from tests.simulation.cluster.replication_checkers import (
    CommittedIsNotCut,
    JoinersAreKnown,
    JoinersHaveAll,
    LatestRises,
    LogsMatch,
    LossIsAccepted,
    ReplicaStays,
    TooFewIsSaid,
)

PLACE = (b"t" * 16, 0)


def asked(high_watermark: int, joiner: ReplicaLog, *, is_durable: bool = True) -> Asked:
    return Asked(1, PLACE, [2], [(2, 7)], high_watermark, {2: joiner}, is_durable)


def test_a_follower_may_truncate_above_its_high_watermark() -> None:
    checker = CommittedIsNotCut()

    checker.cut(Cut(1, PLACE, 5, 5))
    checker.cut(Cut(1, PLACE, 7, 5))
    with pytest.raises(ViolationError, match=r"truncates .* at 4, below its high watermark"):
        checker.cut(Cut(1, PLACE, 4, 5))


def test_no_append_waits_with_too_few_in_sync_replicas() -> None:
    checker = TooFewIsSaid()

    checker.waits(Waits(1, PLACE, has_enough=True))
    with pytest.raises(ViolationError, match="too few are in sync"):
        checker.waits(Waits(1, PLACE, has_enough=False))


def test_a_replica_with_all_committed_records_may_join_the_isr() -> None:
    checker = JoinersHaveAll()

    checker.asked(asked(5, ReplicaLog(9, 5)))
    checker.asked(asked(5, ReplicaLog(5, 4), is_durable=False))
    checker.asked(Asked(1, PLACE, [2], [(2, 7)], 5, {}))


@pytest.mark.parametrize("joiner", [ReplicaLog(4, 4), ReplicaLog(5, 4), ReplicaLog(0, 0)])
def test_a_replica_without_all_committed_records_must_not_join_the_isr(joiner: ReplicaLog) -> None:
    checker = JoinersHaveAll()

    with pytest.raises(ViolationError, match=r"asks for node 2 .* but 5 is committed"):
        checker.asked(asked(5, joiner))


def test_a_replica_joins_the_isr_with_the_proposed_broker_epoch() -> None:
    checker = JoinersAreKnown()

    checker.asked(asked(5, ReplicaLog(5, 5)))
    checker.joined(Joined(2, PLACE, 7))
    with pytest.raises(ViolationError, match="no leader asked for its process of broker epoch 8"):
        checker.joined(Joined(2, PLACE, 8))


def lost(end_offset: int) -> Lost:
    return Lost(PLACE, end_offset, 9, [], is_durable=False)


def test_replicas_may_truncate_lost_records_but_none_below() -> None:
    checker = CommittedIsNotCut()

    checker.lost(lost(4))
    checker.lost(lost(7))
    checker.cut(Cut(1, PLACE, 4, 9))
    with pytest.raises(ViolationError, match=r"truncates .* at 3, below its high watermark"):
        checker.cut(Cut(1, PLACE, 3, 9))


def test_a_loss_passes_over_no_replica_with_the_lost_records() -> None:
    checker = LossIsAccepted()

    checker.lost(lost(4))
    with pytest.raises(ViolationError, match=r"lost from 4 on, but \[2\] have it"):
        checker.lost(Lost(PLACE, 4, 9, [2], is_durable=False))


def test_a_killed_process_keeps_the_records_in_the_page_cache() -> None:
    checker = ReplicaStays()

    checker.opened(Opened(1, PLACE, ReplicaLog(4, 4), ReplicaLog(9, 4)))
    checker.opened(Opened(1, PLACE, ReplicaLog(9, 9), ReplicaLog(9, 4), has_kept_cache=True))
    with pytest.raises(ViolationError, match="up to 9, but finds 8"):
        checker.opened(Opened(1, PLACE, ReplicaLog(8, 8), ReplicaLog(9, 4), has_kept_cache=True))


def test_the_end_offset_may_fall_after_a_loss_and_rises_from_then_on() -> None:
    now = 1.0

    def fail(error: BaseException) -> None:
        raise error

    cluster_history = ClusterHistory([LatestRises()], lambda: now, fail)
    cluster_history.known_end(PLACE, 9, 0.5)
    now = 2.0
    cluster_history.lost(lost(4))
    cluster_history.told_end(ToldEnd(1, PLACE, 9, 1.5))
    cluster_history.known_end(PLACE, 9, 1.5)
    now = 3.0
    cluster_history.told_end(ToldEnd(1, PLACE, 4, 2.5))
    now = 4.0
    with pytest.raises(ViolationError, match="ends at 3; 4 was known"):
        cluster_history.told_end(ToldEnd(1, PLACE, 3, 3.5))


@pytest.mark.parametrize(
    ("one", "other", "end"),
    [
        (ReplicaLog(3, 3, ((6, 0),)), ReplicaLog(2, 2, ((6, 0), (7, 1))), 1),
        (ReplicaLog(3, 3, ((6, 0),)), ReplicaLog(6, 6, ((6, 0), (7, 5))), 3),
        (ReplicaLog(3, 3, ((6, 0),)), ReplicaLog(5, 5, ((6, 0),)), 3),
        (ReplicaLog(9, 9, ((6, 4),), 4), ReplicaLog(8, 8, ((5, 0), (6, 2), (7, 7))), 7),
        (ReplicaLog(3, 3, ((6, 0),)), ReplicaLog(0, 0), 0),
    ],
)
def test_logs_match_up_to_the_first_other_leader_epoch(
    one: ReplicaLog, other: ReplicaLog, end: int
) -> None:
    assert one.agreed_end(other) == other.agreed_end(one) == end


LEADER_LOG = ReplicaLog(9, 9, ((1, 0), (2, 6)))
STALE = ReplicaLog(9, 9, ((1, 0), (2, 5)))
IN_THE_ISR = Shown(PLACE, (2, 1), 5, 1, [1, 2], {1: STALE, 2: LEADER_LOG}, is_durable=True)
OUTSIDE_THE_ISR = msgspec.structs.replace(IN_THE_ISR, must_have_all=[2])


@pytest.fixture
def logs_match() -> LogsMatch:
    logs_match = LogsMatch()
    logs_match.opened(Opened(1, PLACE, STALE, LEADER_LOG))
    return logs_match


def test_a_replica_outside_the_isr_may_differ(logs_match: LogsMatch) -> None:
    logs_match.shown(OUTSIDE_THE_ISR)


def test_a_replica_in_the_isr_must_match(logs_match: LogsMatch) -> None:
    with pytest.raises(ViolationError, match="on node 2"):
        logs_match.shown(IN_THE_ISR)


def test_a_replica_that_has_truncated_must_match(logs_match: LogsMatch) -> None:
    logs_match.cut(Cut(1, PLACE, 5, 6))

    with pytest.raises(ViolationError):
        logs_match.shown(OUTSIDE_THE_ISR)


def test_a_replica_with_an_unchanged_disk_must_match(logs_match: LogsMatch) -> None:
    logs_match.opened(Opened(1, PLACE, STALE, STALE))

    with pytest.raises(ViolationError):
        logs_match.shown(OUTSIDE_THE_ISR)
