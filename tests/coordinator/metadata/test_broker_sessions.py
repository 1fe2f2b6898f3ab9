"""Expiry of silent brokers, and the commands of heartbeats."""

import pytest

from tests.coordinator.metadata.clusters import Cluster
from tests.paths import ROOT
from tidelog.coordinator.metadata.broker_sessions import (
    BEHIND_MS,
    HEARTBEAT_INTERVAL_MS,
    SESSION_MS,
    BrokerHeartbeat,
    BrokerHeartbeatTracker,
    BrokerSession,
    HeartbeatAnswer,
    heartbeat_answer,
    heartbeat_command,
)
from tidelog.coordinator.metadata.commands import BeginShutdown, FenceBroker, UnfenceBroker
from tidelog.wire.errors import StaleBrokerEpochError


def sessions_of(cluster: Cluster, *, now_ms: int = 0) -> BrokerHeartbeatTracker:
    return BrokerHeartbeatTracker(cluster.state.brokers.values(), now_ms=now_ms)


def test_a_broker_that_is_silent_for_a_session_expires() -> None:
    sessions = sessions_of(Cluster(1, 2))
    sessions.touch(2, 2, now_ms=1000)

    assert sessions.next_deadline_ms == SESSION_MS
    assert sessions.expired(now_ms=SESSION_MS - 1) == []
    assert sessions.expired(now_ms=SESSION_MS) == [FenceBroker(1, 1)]


def test_heartbeats_renew_the_broker_session() -> None:
    sessions = sessions_of(Cluster(1))

    for now_ms in range(0, 10 * SESSION_MS, HEARTBEAT_INTERVAL_MS):
        assert sessions.expired(now_ms=now_ms) == []
        sessions.touch(1, 1, now_ms=now_ms)


def test_an_expired_broker_is_returned_again_until_it_is_fenced() -> None:
    sessions = sessions_of(Cluster(1))
    sessions.expired(now_ms=SESSION_MS)

    again_ms = sessions.next_deadline_ms
    assert again_ms is not None
    assert again_ms == SESSION_MS + 1_000, "not at once, or else the caller would spin"
    assert sessions.expired(now_ms=SESSION_MS) == []
    assert sessions.expired(now_ms=again_ms) == [FenceBroker(1, 1)]

    sessions.fenced(1, 1)
    assert sessions.next_deadline_ms is None
    assert sessions.expired(now_ms=10**9) == []


def test_a_new_controller_gives_every_broker_a_full_session() -> None:
    cluster = Cluster(1, 2)
    cluster.fence(2)

    sessions = sessions_of(cluster, now_ms=5_000)

    assert sessions.next_deadline_ms == 5_000 + SESSION_MS
    assert sessions.expired(now_ms=5_000 + SESSION_MS) == [FenceBroker(1, 1)], "2 is fenced already"


def test_a_heartbeat_of_an_earlier_process_does_not_count() -> None:
    sessions = sessions_of(Cluster(1))
    sessions.touch(1, 5, now_ms=0)

    sessions.touch(1, 1, now_ms=8_000)
    sessions.fenced(1, 1)

    assert sessions.expired(now_ms=SESSION_MS) == [FenceBroker(1, 5)]


def test_the_fencing_of_a_later_process_ends_the_session_of_an_earlier_one() -> None:
    sessions = sessions_of(Cluster(1))
    sessions.fenced(2, 9)
    assert sessions.next_deadline_ms == SESSION_MS, "that was another broker"

    sessions.fenced(1, 9)

    assert sessions.next_deadline_ms is None


def test_three_heartbeats_in_a_row_may_be_lost() -> None:
    sessions = sessions_of(Cluster(1))
    sessions.touch(1, 1, now_ms=0)

    assert sessions.expired(now_ms=4 * HEARTBEAT_INTERVAL_MS - 1) == []


def test_a_pause_of_the_controller_prolongs_all_sessions() -> None:
    sessions = sessions_of(Cluster(1, 2))
    sessions.touch(2, 2, now_ms=700)

    sessions.extend(10_000)

    assert sessions.expired(now_ms=SESSION_MS + 9_999) == []
    assert sessions.expired(now_ms=SESSION_MS + 10_000) == [FenceBroker(1, 1)]
    assert sessions.expired(now_ms=SESSION_MS + 10_700) == [FenceBroker(2, 2)]


def test_a_broker_that_does_not_apply_announced_metadata_is_behind() -> None:
    sessions = sessions_of(Cluster(1))
    sessions.informed(1, 1, index=10, now_ms=0)
    sessions.informed(1, 1, index=50, now_ms=2_000)

    assert not sessions.is_behind(BrokerHeartbeat(1, 1, applied_index=9), now_ms=BEHIND_MS - 1)
    assert sessions.is_behind(BrokerHeartbeat(1, 1, applied_index=9), now_ms=BEHIND_MS)
    assert not sessions.is_behind(BrokerHeartbeat(1, 1, applied_index=10), now_ms=BEHIND_MS)

    sessions.informed(1, 1, index=60, now_ms=BEHIND_MS)
    assert not sessions.is_behind(BrokerHeartbeat(1, 1, applied_index=10), now_ms=2 * BEHIND_MS - 1)
    assert sessions.is_behind(BrokerHeartbeat(1, 1, applied_index=10), now_ms=2 * BEHIND_MS)


def test_a_pause_of_the_controller_puts_no_broker_behind() -> None:
    sessions = sessions_of(Cluster(1))
    sessions.informed(1, 1, index=10, now_ms=0)

    sessions.extend(60_000)

    assert not sessions.is_behind(
        BrokerHeartbeat(1, 1, applied_index=9), now_ms=60_000 + BEHIND_MS - 1
    )


def test_a_restarted_broker_is_not_behind_for_metadata_announced_before() -> None:
    sessions = sessions_of(Cluster(1))
    sessions.informed(1, 1, index=10, now_ms=0)

    assert not sessions.is_behind(BrokerHeartbeat(1, 2, applied_index=3), now_ms=BEHIND_MS)

    sessions.informed(1, 2, index=12, now_ms=BEHIND_MS)
    assert not sessions.is_behind(BrokerHeartbeat(1, 2, applied_index=3), now_ms=BEHIND_MS + 1)


def test_a_broker_of_an_earlier_version_is_never_behind() -> None:
    sessions = sessions_of(Cluster(1))
    sessions.informed(1, 1, index=10, now_ms=0)

    assert not sessions.is_behind(BrokerHeartbeat(1, 1), now_ms=10 * BEHIND_MS)


def test_the_heartbeat_of_a_caught_up_fenced_broker_unfences_it() -> None:
    cluster = Cluster()
    epoch = cluster.register(1)
    heartbeat = BrokerHeartbeat(1, epoch)

    assert heartbeat_command(cluster.state, heartbeat, is_caught_up=False) is None
    command = heartbeat_command(cluster.state, heartbeat, is_caught_up=True)
    assert command == UnfenceBroker(1, epoch)
    cluster.unfence(1)
    assert heartbeat_command(cluster.state, heartbeat, is_caught_up=True) is None
    assert heartbeat_answer(cluster.state, heartbeat) == HeartbeatAnswer(
        is_fenced=False, may_stop=False
    )


def test_a_broker_may_stop_when_its_leaderships_have_moved() -> None:
    cluster = Cluster(1, 2)
    cluster.create("orders", [1, 2], [1, 2])
    cluster.in_sync(1)
    heartbeat = BrokerHeartbeat(1, cluster.broker(1).broker_epoch, wants_to_stop=True)

    command = heartbeat_command(cluster.state, heartbeat, is_caught_up=True)
    assert isinstance(command, BeginShutdown)
    assert not heartbeat_answer(cluster.state, heartbeat).may_stop
    cluster.do(command)

    assert heartbeat_command(cluster.state, heartbeat, is_caught_up=True) is None
    assert heartbeat_answer(cluster.state, heartbeat).may_stop
    assert [cluster.partition(number=number).leader for number in (0, 1)] == [1, 2]


def test_an_earlier_process_must_register() -> None:
    cluster = Cluster(1)
    cluster.start(1)

    with pytest.raises(StaleBrokerEpochError):
        heartbeat_command(cluster.state, BrokerHeartbeat(1, 1), is_caught_up=True)
    with pytest.raises(StaleBrokerEpochError):
        heartbeat_answer(cluster.state, BrokerHeartbeat(1, 1))


def test_a_broker_session_ends_at_the_broker_before_the_controller() -> None:
    own = BrokerSession()
    assert not own.is_valid(now_ms=0)

    own.answered(sent_at_ms=1_000)
    own.answered(sent_at_ms=500)

    assert own.is_valid(now_ms=1_000 + SESSION_MS - 1)
    assert not own.is_valid(now_ms=1_000 + SESSION_MS)


def test_the_documented_times_of_sessions_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "metadata.md").read_text(encoding="utf-8")

    session_s, interval_s = SESSION_MS / 1000, HEARTBEAT_INTERVAL_MS / 1000
    assert f"silent for {session_s:g} s (heartbeats every {interval_s:g} s)" in page
    assert f"After {BEHIND_MS / 1000:g} s its heartbeats" in page
