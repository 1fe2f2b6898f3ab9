"""Story of one message: intervals from events."""

from collections.abc import Iterable

import pytest
import trio
from trio.testing import MockClock

from tests.client.queue_fixture import made, work_queue
from tidelog.client.queue.inspect.history import EventKind, HistoryEvent
from tidelog.client.queue.inspect.message_story import MessageInterval, intervals_of
from tidelog.wire.errors import TidelogError


def event(
    time_ms: int, kind: EventKind, *, until: int | None = None, receives: int = 1, reason: str = ""
) -> HistoryEvent:
    holder = "me" if kind is EventKind.RECEIVE else ""
    return HistoryEvent(
        0, time_ms, kind, 7, None, holder, receives, visible_at_ms=until, reason=reason
    )


def shown(intervals: Iterable[MessageInterval]) -> list[tuple[str, int, int, str]]:
    return [
        ("lease" if each.is_lease else "wait", each.start_ms, each.end_ms, each.outcome)
        for each in intervals
    ]


RECEIVED = event(20, EventKind.RECEIVE, until=50)


def test_a_message_waits_is_received_and_deleted() -> None:
    found = intervals_of([RECEIVED, event(30, EventKind.DELETE)], sent_ms=10, now_ms=99)

    assert shown(found) == [("wait", 10, 20, "receive"), ("lease", 20, 30, "delete")]
    assert (found[1].holder, found[1].receive_count) == ("me", 1)


def test_a_lease_expires_before_the_next_receive() -> None:
    again = event(80, EventKind.RECEIVE, until=120, receives=2)

    found = intervals_of([RECEIVED, again, event(90, EventKind.DELETE)], sent_ms=10, now_ms=999)

    assert shown(found)[1:] == [
        ("lease", 20, 50, "lease-expired"),
        ("wait", 50, 80, "receive"),
        ("lease", 80, 90, "delete"),
    ]
    assert [each.is_failure for each in found] == [False, True, False, False]


@pytest.mark.parametrize("kind", [EventKind.EXTEND, EventKind.REPEAT])
def test_an_extension_moves_the_end_of_a_lease(kind: EventKind) -> None:
    events = [RECEIVED, event(40, kind, until=70), event(60, EventKind.DELETE)]

    assert shown(intervals_of(events, sent_ms=10, now_ms=99))[1:] == [("lease", 20, 60, "delete")]


def test_a_late_delete_comes_after_the_expiry() -> None:
    found = intervals_of([RECEIVED, event(60, EventKind.DELETE)], sent_ms=10, now_ms=99)

    assert shown(found)[1:] == [("lease", 20, 50, "lease-expired"), ("wait", 50, 60, "delete")]


@pytest.mark.parametrize(
    ("now_ms", "rest"),
    [
        (40, [("lease", 20, 40, "in-flight")]),
        (50, [("lease", 20, 50, "lease-expired"), ("wait", 50, 50, "waiting")]),
        (60, [("lease", 20, 50, "lease-expired"), ("wait", 50, 60, "waiting")]),
    ],
)
def test_an_open_interval_ends_now(now_ms: int, rest: list[tuple[str, int, int, str]]) -> None:
    assert shown(intervals_of([RECEIVED], sent_ms=10, now_ms=now_ms))[1:] == rest


def test_a_dead_letter_waits_for_its_move() -> None:
    events = [
        RECEIVED,
        event(30, EventKind.DEAD_LETTER, reason="bad"),
        event(35, EventKind.MOVED),
    ]

    found = intervals_of(events, sent_ms=10, now_ms=99)

    assert shown(found)[1:] == [("lease", 20, 30, "dead-letter"), ("wait", 30, 35, "moved")]
    assert (found[1].is_failure, found[1].reason) == (True, "bad")


@pytest.mark.parametrize(("reason", "is_failure"), [("", False), ("KeyError", True)])
def test_a_release_for_a_reason_is_a_failure(reason: str, *, is_failure: bool) -> None:
    events = [RECEIVED, event(30, EventKind.RELEASE, reason=reason)]

    _, lease, wait = intervals_of(events, sent_ms=10, now_ms=40)

    assert (lease.is_failure, lease.outcome) == (is_failure, "release")
    assert shown([wait]) == [("wait", 30, 40, "waiting")]


def test_clocks_that_differ_make_no_negative_times() -> None:
    assert shown(intervals_of([RECEIVED], sent_ms=25, now_ms=40))[0] == ("wait", 20, 20, "receive")


def test_without_a_record_the_story_begins_with_the_first_event() -> None:
    assert shown(intervals_of([RECEIVED], sent_ms=None, now_ms=40)) == [
        ("lease", 20, 40, "in-flight")
    ]
    assert intervals_of([], sent_ms=None, now_ms=40) == []


async def test_a_story_comes_from_the_queue(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock) as (client, _):
        await made(client, "dead")
        queue = await made(
            client, "jobs", dead_letter_queue="dead", max_receive_count=3, visibility_timeout=30
        )
        receipt = await queue.send(b"a", headers=[("x", b"1")])
        await trio.sleep(5)
        await queue.receive(1)
        await trio.sleep(40)
        (message,) = await queue.receive(1)
        await trio.sleep(1)
        await message.release(0, reason="busy")
        (message,) = await queue.receive(1)
        await message.reject("no number")
        await trio.sleep(5)

        story = await queue.story(receipt.message_id)

        assert (story.queue, story.message_id, story.headers) == ("jobs", "0-0", (("x", b"1"),))
        assert story.sent_ms == receipt.timestamp_ms
        seconds = [
            (kind, (end - start) // 1000, outcome)
            for kind, start, end, outcome in shown(story.intervals)
        ]
        assert seconds[:6] == [
            ("wait", 5, "receive"),
            ("lease", 30, "lease-expired"),
            ("wait", 10, "receive"),
            ("lease", 1, "release"),
            ("wait", 0, "receive"),
            ("lease", 0, "dead-letter"),
        ]
        assert seconds[6][2] == "moved"
        assert [each.kind for each in story.events][-1] is EventKind.MOVED


async def test_a_story_of_nothing_is_empty(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock) as (_, queue):
        story = await queue.story("0-7")
        assert (story.intervals, story.headers, story.sent_ms) == ([], (), None)
        with pytest.raises(TidelogError):
            await queue.story("5-0")
        with pytest.raises(ValueError, match="no message id"):
            await queue.story("x")
