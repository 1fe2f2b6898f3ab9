"""History of messages, from the entries of a journal."""

from tests.golden.queue_journal import FRAMES
from tidelog.client.queue.inspect.history import EventKind, HistoryEvent, QueueHistory
from tidelog.wire.messages.queue_journal import (
    NO_TARGET,
    AnyEntry,
    Attempt,
    DeadLettered,
    Delayed,
    Deleted,
    Expired,
    Extended,
    JournalFrame,
    LogStartAdvanced,
    Moved,
    MoveFailed,
    Purged,
    Received,
    ReceiveRepeated,
    RedriveEnded,
    Redriven,
    RedriveProgressed,
    RedriveStarted,
    Released,
    Returned,
    Seeked,
    SnapshotEnded,
    SnapshotMoreAttempts,
    SnapshotRun,
    SnapshotRuns,
    SnapshotStarted,
    TargetChanged,
)

NOW_MS = 1_700_000_000_000
DEAD = (b"a topic", 2)


def told(history: QueueHistory, *entries: AnyEntry, at: int = 0) -> list[HistoryEvent]:
    return list(history.events(at, JournalFrame(NOW_MS + at, list(entries))))


def shown(events: list[HistoryEvent]) -> list[tuple[str, int | None, int, str]]:
    return [(each.kind, each.offset, each.receive_count, each.holder) for each in events]


def test_each_message_of_a_receive_is_an_event_with_its_holder_and_count() -> None:
    history = QueueHistory()

    first, second = told(history, Received(7, [(10, 1), (12, 1)], NOW_MS + 30, "w-1"), at=5)

    assert first == HistoryEvent(
        5, NOW_MS + 5, EventKind.RECEIVE, 10, None, "w-1", 1, 7, NOW_MS + 30, "", None, 1
    )
    assert second.offset == 12


def test_events_after_a_receive_have_its_holder_and_count() -> None:
    history = QueueHistory()
    told(history, Received(1, [(10, 2)], NOW_MS, "w-1"))
    told(history, Received(2, [(10, 1)], NOW_MS, "w-2"))

    events = [
        *told(history, Extended(2, [(10, 1)], NOW_MS + 9)),
        *told(history, Released([(11, 1)], NOW_MS + 8, "later")),
        *told(history, Deleted([(10, 2)])),
        *told(history, Received(3, [(10, 1)], NOW_MS, "w-3")),
    ]

    assert shown(events) == [
        ("extend", 10, 2, "w-2"),
        ("release", 11, 1, "w-1"),
        ("delete", 10, 2, "w-2"),
        ("delete", 11, 1, "w-1"),
        ("receive", 10, 1, "w-3"),
    ]
    assert (events[1].reason, events[1].visible_at_ms) == ("later", NOW_MS + 8)
    assert events[0].lease_id == 2


def test_a_returned_message_does_not_count_as_received() -> None:
    history = QueueHistory()
    told(history, Received(1, [(10, 1)], NOW_MS, "w-1"))
    told(history, Received(2, [(10, 1)], NOW_MS, "w-2"))

    once = told(history, Returned([(10, 1)], NOW_MS))
    twice = told(history, Returned([(10, 1)], NOW_MS))

    assert shown([*once, *twice]) == [("return", 10, 1, "w-2"), ("return", 10, 0, "w-2")]
    assert history.received(10) == (0, "")


def test_a_repeated_receive_is_an_event_that_does_not_count() -> None:
    history = QueueHistory()
    told(history, Received(1, [(10, 2)], NOW_MS, "w-1", b"attempt"))

    events = told(history, ReceiveRepeated(b"attempt", NOW_MS + 99))

    assert shown(events) == [("repeat", 10, 1, "w-1"), ("repeat", 11, 1, "w-1")]
    assert told(history, ReceiveRepeated(b"unknown", NOW_MS)) == []


def test_a_dead_letter_keeps_its_count_until_it_is_moved_or_returns() -> None:
    history = QueueHistory()
    told(history, Received(1, [(10, 1)], NOW_MS, "w-1"))

    events = [
        *told(history, DeadLettered([(10, 1)], DEAD, "no number")),
        *told(history, MoveFailed(DEAD, 0, 0, 1, "too large")),
        *told(history, Received(2, [(10, 1)], NOW_MS, "w-2")),
    ]

    assert shown(events) == [
        ("dead-letter", 10, 1, "w-1"),
        ("move-failed", None, 0, ""),
        ("receive", 10, 2, "w-2"),
    ]
    assert (events[0].reason, events[0].target) == ("no number", DEAD)
    assert (events[1].reason, events[1].message_count) == ("too large", 1)


def test_an_entry_about_many_messages_is_one_event() -> None:
    history = QueueHistory()
    told(history, Received(1, [(10, 2)], NOW_MS, "w-1"))

    events = told(
        history,
        Purged(11),
        LogStartAdvanced(5),
        Moved(DEAD, 0, 0, 3),
        TargetChanged(NO_TARGET, DEAD),
        RedriveStarted(20, 4),
        RedriveProgressed(12, 1),
        RedriveEnded(1, "done"),
        Seeked(7),
    )

    assert [(each.kind, each.below_offset, each.message_count) for each in events] == [
        ("purge", 11, 0),
        ("trim", 5, 0),
        ("moved", None, 3),
        ("retarget", None, 0),
        ("redrive-start", 20, 4),
        ("redrive-end", None, 0),
        ("seek", 7, 0),
    ]
    assert all(each.offset is None for each in events)


def test_a_purge_or_seek_resets_the_history_of_messages() -> None:
    history = QueueHistory()
    told(history, Received(1, [(10, 2)], NOW_MS, "w-1"), Purged(11))
    assert [history.received(offset)[0] for offset in (10, 11)] == [0, 1]

    told(history, Seeked(0))

    assert history.received(11) == (0, "")


def test_unreceived_messages_have_events() -> None:
    history = QueueHistory()

    events = told(
        history,
        Delayed([(3, 1, NOW_MS + 60)]),
        Expired([(4, 1)]),
        Deleted([(5, 1)]),
        Redriven([(6, 1)], DEAD),
    )

    assert shown(events) == [
        ("defer", 3, 0, ""),
        ("expire", 4, 0, ""),
        ("delete", 5, 0, ""),
        ("redrive", 6, 0, ""),
    ]
    assert all(each.lease_id is None for each in events)


def test_a_snapshot_restores_state_without_events() -> None:
    history = QueueHistory()
    began = SnapshotStarted(
        20, 9, 1, [], None, [Attempt(b"one", 8, ((12, 1),), NOW_MS - 5, NOW_MS + 30)]
    )
    runs = [SnapshotRun(10, 2, 0, 5, 3, 9, 4, 8, 1), SnapshotRun(0, 1, 1, 5, 1, 4, 4, 1, 0)]

    events = [
        *told(history, began),
        *told(history, SnapshotMoreAttempts([Attempt(b"two", 1, ((10, 1),), NOW_MS, NOW_MS)])),
        *told(history, SnapshotRuns([("w-9", ""), ("w-8", "slow")], runs)),
        *told(history, SnapshotEnded(2)),
    ]

    assert events == []
    assert [history.received(offset) for offset in range(10, 14)] == [
        (3, "w-8"),
        (3, "w-8"),
        (1, "w-9"),
        (0, ""),
    ]
    assert shown(told(history, ReceiveRepeated(b"one", NOW_MS))) == [("repeat", 12, 1, "w-9")]
    assert shown(told(history, ReceiveRepeated(b"two", NOW_MS))) == [("repeat", 10, 3, "w-8")]


def test_an_incomplete_snapshot_is_ignored() -> None:
    history = QueueHistory()
    told(history, Received(1, [(10, 1)], NOW_MS, "w-1"))
    told(history, SnapshotStarted(20, 9, 1, []))
    told(history, SnapshotRuns([("w-9", "")], [SnapshotRun(30, 1, 1, 5, 1, 4, 4, 1, 0)]))

    told(history, Received(2, [(11, 1)], NOW_MS, "w-2"))
    told(history, SnapshotEnded(1))

    assert history.received(10) == (1, "w-1")
    assert history.received(30) == (0, "")


def test_every_kind_of_entry_is_understood() -> None:
    history = QueueHistory()

    kinds = {each.kind for frame in FRAMES for each in history.events(0, frame)}

    assert kinds == set(EventKind)


def test_expired_attempts_are_removed() -> None:
    history = QueueHistory()
    told(history, Received(1, [(10, 1)], NOW_MS, "", b"old"))

    told(history, Received(2, [(11, 1)], NOW_MS, "", b"new"), at=5 * 60 * 1000 + 1)

    assert told(history, ReceiveRepeated(b"old", NOW_MS)) == []
