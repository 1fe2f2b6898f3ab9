"""Reports of a blocked event loop."""

from trio.testing import MockClock

from tidelog.client.cluster.blocked_loop import BlockedLoop


async def test_a_late_timer_is_reported_once_a_minute(mock_clock: MockClock) -> None:
    reports: list[object] = []

    def probe(event: str, **fields: object) -> None:
        reports.append((event, fields))

    blocked_loop = BlockedLoop(probe)
    blocked_loop.woke(float("inf"))  # Nothing was due.
    mock_clock.jump(10)
    blocked_loop.woke(9.0)  # As late as on a busy machine.
    assert reports == []

    blocked_loop.woke(7.75)
    mock_clock.jump(59)
    blocked_loop.woke(60.0)
    assert reports == [("client.loop_blocked", {"severity": "warning", "seconds": 2.2})]

    mock_clock.jump(1)
    blocked_loop.woke(60.0)
    assert len(reports) == 2
