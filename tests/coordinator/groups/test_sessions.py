"""Sessions of members, by a clock that ignores stalls of the coordinator."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.groups.config import GroupConfig
from tidelog.coordinator.groups.sessions import ExpiredMember, MemberKey, SessionHeartbeat, Sessions
from tidelog.coordinator.groups.stall_tolerant_clock import STEP_MAX_MS, StallTolerantClock

CONFIG = GroupConfig()
A, B = ("g", "a"), ("g", "b")
REVOKING = SessionHeartbeat(rebalance_timeout_ms=20_000)


def fenced(sessions: Sessions, now_ms: int) -> list[tuple[str, str]]:
    return [(one.member_id, one.reason) for one in sessions.expired(now_ms)]


def test_a_silent_member_is_fenced_once() -> None:
    sessions = Sessions(CONFIG)
    sessions.on_heartbeat(A, SessionHeartbeat(), 0)

    assert fenced(sessions, 44_999) == []
    assert sessions.next_deadline_ms == 45_000
    assert fenced(sessions, 45_000) == [("a", "session timeout")]
    assert fenced(sessions, 90_000) == []
    assert sessions.next_deadline_ms is None


def test_each_heartbeat_renews_the_session() -> None:
    sessions = Sessions(CONFIG)
    for now_ms in range(0, 200_000, 5_000):
        sessions.on_heartbeat(A, SessionHeartbeat(), now_ms)
        assert fenced(sessions, now_ms) == []

    assert fenced(sessions, 195_000 + 44_999) == []
    assert fenced(sessions, 195_000 + 45_000) == [("a", "session timeout")]


def test_a_member_that_exceeds_the_rebalance_timeout_is_fenced() -> None:
    sessions = Sessions(CONFIG)
    for now_ms in (0, 5_000, 10_000, 15_000):
        sessions.on_heartbeat(A, REVOKING, now_ms)

    assert fenced(sessions, 19_999) == []
    assert fenced(sessions, 20_000) == [("a", "did not revoke in time")]


def test_a_member_that_revokes_in_time_is_not_fenced() -> None:
    sessions = Sessions(CONFIG)
    sessions.on_heartbeat(A, REVOKING, 0)
    sessions.on_heartbeat(A, SessionHeartbeat(), 19_000)

    assert fenced(sessions, 40_000) == []


def test_a_busy_application_delays_the_session_timeout() -> None:
    sessions = Sessions(CONFIG)
    sessions.on_heartbeat(A, SessionHeartbeat(busy_for_ms=600_000, rebalance_timeout_ms=20_000), 0)

    assert fenced(sessions, 599_999) == []
    assert fenced(sessions, 600_000) == [("a", "did not revoke in time")]


def test_max_poll_interval_fences_a_permanently_busy_member() -> None:
    sessions = Sessions(CONFIG)
    for now_ms in range(0, 1_800_000, 5_000):
        sessions.on_heartbeat(A, SessionHeartbeat(busy_for_ms=10_000), now_ms)
        assert fenced(sessions, now_ms) == []

    assert fenced(sessions, 1_800_000) == [("a", "max poll interval")]


def test_a_handler_that_finishes_in_between_is_not_stuck() -> None:
    sessions = Sessions(CONFIG)
    for now_ms in range(0, 3_600_000, 5_000):
        busy_for_ms = 0 if now_ms % 1_000_000 == 0 else 10_000
        sessions.on_heartbeat(A, SessionHeartbeat(busy_for_ms=busy_for_ms), now_ms)
        assert fenced(sessions, now_ms) == []


def test_a_busy_application_is_limited_by_max_poll_interval() -> None:
    sessions = Sessions(CONFIG)
    sessions.on_heartbeat(A, SessionHeartbeat(busy_for_ms=10**12), 0)

    assert fenced(sessions, 1_799_999) == []
    assert fenced(sessions, 1_800_000) == [("a", "max poll interval")]


def test_a_member_that_left_is_not_fenced() -> None:
    sessions = Sessions(CONFIG)
    sessions.on_heartbeat(A, SessionHeartbeat(), 0)
    sessions.on_heartbeat(B, SessionHeartbeat(), 0)
    sessions.forget(A)
    sessions.forget(A)

    assert fenced(sessions, 45_000) == [("b", "session timeout")]


def test_sessions_of_former_members_use_no_memory() -> None:
    sessions = Sessions(CONFIG)
    for number in range(10_000):
        sessions.on_heartbeat(("g", str(number)), SessionHeartbeat(), number)
        sessions.forget(("g", str(number)))

    assert len(sessions._queue) < 10  # pyright: ignore[reportPrivateUsage]


heartbeat = st.builds(
    SessionHeartbeat,
    busy_for_ms=st.sampled_from([0, 0, 1_000, 100_000, 10**10]),
    rebalance_timeout_ms=st.sampled_from([None, None, 20_000, 60_000]),
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([A, B, ("h", "a")]),
            st.one_of(heartbeat, st.none()),
            st.integers(0, 30_000),
        ),
        max_size=40,
    )
)
def test_the_session_queue_agrees_with_a_full_scan(
    events: list[tuple[MemberKey, SessionHeartbeat | None, int]],
) -> None:
    sessions = Sessions(CONFIG)
    naive: dict[MemberKey, Sessions] = {}
    now_ms = 0
    for key, heartbeat, wait_ms in events:
        now_ms += wait_ms
        if heartbeat is None:
            sessions.forget(key)
            naive.pop(key, None)
        else:
            sessions.on_heartbeat(key, heartbeat, now_ms)
            naive.setdefault(key, Sessions(CONFIG)).on_heartbeat(key, heartbeat, now_ms)
        expected: list[ExpiredMember] = []
        for other in list(naive):
            # Alone, and called at its own deadline only.
            found = naive[other].expired(now_ms)
            if found:
                del naive[other]
            expected.extend(found)
        assert sorted(map(repr, sessions.expired(now_ms))) == sorted(map(repr, expected))


def test_the_clock_runs_as_usual_with_frequent_reads() -> None:
    time = StallTolerantClock(1_000)

    assert [time.read(now_ms) for now_ms in (1_000, 1_500, 6_500)] == [1_000, 1_500, 6_500]


def test_a_pause_counts_for_a_moment_only() -> None:
    time = StallTolerantClock(0)
    time.read(1_000)

    assert time.read(3_600_000) == 1_000 + STEP_MAX_MS
    assert time.read(3_600_010) == 1_000 + STEP_MAX_MS + 10


def test_a_clock_set_back_changes_no_time_and_a_passed_deadline_is_due_at_once() -> None:
    time = StallTolerantClock(1_000)

    assert [time.read(now_ms) for now_ms in (990, 0, 1_000, 1_010)] == [1_000] * 3 + [1_010]
    assert time.latest_wakeup(0) == time.latest_wakeup(1_010) == 1_010
    assert time.latest_wakeup(1_011) == 1_011


def test_a_distant_deadline_is_waited_for_in_steps() -> None:
    time = StallTolerantClock(0)

    assert time.latest_wakeup(45_000) == STEP_MAX_MS
    assert time.latest_wakeup(700) == 700
    assert time.latest_wakeup(-5) == 0


@given(st.lists(st.integers(0, STEP_MAX_MS)), st.integers(0, 100_000))
def test_reads_at_the_latest_wakeup_miss_no_deadline(waits: list[int], deadline_ms: int) -> None:
    time, now_ms = StallTolerantClock(0), 0
    for wait_ms in waits:
        now_ms += wait_ms
        assert time.read(now_ms) == now_ms
    while time.read(now_ms) < deadline_ms:
        assert now_ms < time.latest_wakeup(deadline_ms) <= deadline_ms
        now_ms = time.latest_wakeup(deadline_ms)

    assert now_ms >= deadline_ms
