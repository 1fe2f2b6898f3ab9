"""History of one message: events of many messages belong to it if they change it."""

import pytest

from tests.golden.queue_journal import FRAMES
from tidelog.client.queue.inspect.history import HistoryEvent, QueueHistory
from tidelog.client.queue.inspect.message_history import MessageHistory
from tidelog.wire.messages.queue_journal import (
    NO_TARGET,
    AnyEntry,
    DeadLettered,
    Delayed,
    Deleted,
    Expired,
    JournalFrame,
    LogStartAdvanced,
    Moved,
    MoveFailed,
    Purged,
    Received,
    RedriveEnded,
    Redriven,
    RedriveStarted,
    Released,
    Seeked,
    SnapshotEnded,
    SnapshotMoreMoves,
    SnapshotMoves,
    SnapshotRun,
    SnapshotRuns,
    SnapshotStarted,
    TargetChanged,
)

NOW_MS = 1_700_000_000_000
DEAD = (b"a topic", 2)
OTHER = (b"another topic", 0)


def told(history: MessageHistory, *entries: AnyEntry) -> list[HistoryEvent]:
    return list(history.events(0, JournalFrame(NOW_MS, list(entries))))


def kinds(history: MessageHistory, *entries: AnyEntry) -> list[str]:
    events = told(history, *entries)
    assert {each.offset for each in events} <= {10}
    return [str(each.kind) for each in events]


@pytest.mark.statement("b101")
def test_events_of_other_messages_are_left_out() -> None:
    history = MessageHistory(3, 10)

    events = told(
        history,
        Received(1, [(8, 5)], NOW_MS, "w-1"),
        Released([(10, 1)], NOW_MS),
        Deleted([(9, 1)]),
    )

    assert [(each.kind, each.offset, each.partition) for each in events] == [
        ("receive", 10, 3),
        ("release", 10, 3),
    ]


@pytest.mark.statement("b101")
def test_a_purge_or_trim_is_an_event_of_a_message_that_it_removes() -> None:
    for removed in (Purged, LogStartAdvanced):
        assert kinds(MessageHistory(0, 10), removed(10)) == []
        assert len(kinds(MessageHistory(0, 10), removed(11), removed(12))) == 1
        for done in (Deleted([(10, 1)]), Expired([(9, 2)])):
            assert len(kinds(MessageHistory(0, 10), done, removed(11))) == 1, "only its end"


def test_an_event_of_many_messages_has_the_last_receiver_of_this_one() -> None:
    history = MessageHistory(0, 10)
    told(history, Received(1, [(10, 1)], NOW_MS, "w-1"), Received(2, [(10, 1)], NOW_MS, "w-2"))

    (purge,) = told(history, Purged(20))

    assert (purge.offset, purge.below_offset) == (10, 20)
    assert (purge.receive_count, purge.holder, purge.message_count) == (2, "w-2", 1)


def test_a_seek_is_an_event_of_a_message_that_it_changes() -> None:
    received = Received(1, [(10, 1)], NOW_MS)
    assert kinds(MessageHistory(0, 10), Seeked(0), Seeked(10)) == []
    assert kinds(MessageHistory(0, 10), Seeked(11), Seeked(12)) == ["seek"]
    assert kinds(MessageHistory(0, 10), Seeked(0), received, Seeked(5)) == ["receive", "seek"]
    assert kinds(MessageHistory(0, 10), Deleted([(10, 1)]), Seeked(5)) == ["delete", "seek"]
    assert kinds(MessageHistory(0, 10), Purged(11), Seeked(5), Seeked(6)) == ["purge", "seek"]
    delayed = Delayed([(10, 1, NOW_MS + 5)])
    assert kinds(MessageHistory(0, 10), delayed, Seeked(10)) == ["defer", "seek"]


@pytest.mark.statement("b101")
def test_a_move_is_an_event_of_the_messages_that_it_moves() -> None:
    history = MessageHistory(0, 10)
    told(history, DeadLettered([(4, 2), (7, 1)], DEAD), DeadLettered([(8, 4)], DEAD))
    told(history, DeadLettered([(20, 9)], OTHER))

    assert kinds(history, Moved(OTHER, 0, 0, 9), Moved(DEAD, 0, 0, 3), Moved(DEAD, 0, 3, 2)) == []
    assert kinds(history, Moved(DEAD, 0, 5, 1), Moved(DEAD, 0, 6, 1)) == ["moved"]
    assert kinds(history, Purged(30)) == [], "it was gone"


def test_a_failed_or_redirected_move_is_an_event_of_its_messages() -> None:
    history = MessageHistory(0, 10)
    told(history, DeadLettered([(9, 1)], DEAD), DeadLettered([(10, 1)], NO_TARGET))

    assert kinds(history, TargetChanged(OTHER, DEAD)) == []
    assert kinds(history, TargetChanged(NO_TARGET, DEAD)) == ["retarget"]
    assert kinds(history, MoveFailed(DEAD, 0, 0, 1, "too large")) == []
    assert kinds(history, MoveFailed(DEAD, 0, 0, 1, "too large")) == ["move-failed"]
    assert kinds(history, Purged(11)) == ["purge"], "it was visible again"


def test_a_redrive_is_an_event_of_the_messages_that_it_takes() -> None:
    history = MessageHistory(0, 10)
    events = kinds(
        history,
        RedriveStarted(20, 4),
        Redriven([(9, 2)], DEAD),
        Moved(DEAD, 0, 0, 2),
        RedriveEnded(1),
    )

    assert events == ["redrive", "moved"]


def test_messages_of_a_purge_are_not_moved() -> None:
    history = MessageHistory(0, 10)
    told(history, DeadLettered([(4, 1)], DEAD), Purged(5), DeadLettered([(10, 1)], DEAD))

    assert kinds(history, Moved(DEAD, 1, 0, 1)) == ["moved"]


def test_a_snapshot_says_whether_the_message_is_done_and_on_its_way() -> None:
    def restored(cursor: int, *runs: SnapshotRun, moves: int = 0) -> MessageHistory:
        history = MessageHistory(0, 10)
        first = [SnapshotMoves(DEAD, 0, 0, [[(3, moves)]])] if moves else []
        more = [SnapshotMoves(DEAD, 0, 0, [[(10, 1)]])] if moves else []
        entries: list[AnyEntry] = [
            SnapshotStarted(cursor, 9, 1, first),
            SnapshotMoreMoves(more),
            SnapshotRuns([("w-9", "")], list(runs)),
            SnapshotEnded(len(runs)),
        ]
        assert told(history, *entries) == []
        return history

    in_flight = SnapshotRun(10, 1, 1, 5, 1, 4, 4, 1, 0)
    skipped = SnapshotRun(8, 4, 0, 0, 0, 0, 0, 0, 0)
    assert kinds(restored(20), Purged(11)) == [], "below the cursor and in no run"
    assert kinds(restored(10), Purged(11)) == ["purge"]
    assert kinds(restored(20, in_flight), Purged(11)) == ["purge"]
    assert kinds(restored(20, in_flight), Seeked(0)) == ["seek"]
    assert kinds(restored(20, skipped), Seeked(0)) == []
    assert kinds(restored(20, in_flight, moves=2), Moved(DEAD, 0, 0, 2)) == []
    assert kinds(restored(20, in_flight, moves=2), Moved(DEAD, 0, 0, 3)) == ["moved"]


def test_an_incomplete_snapshot_changes_nothing() -> None:
    history = MessageHistory(0, 10)
    told(history, SnapshotStarted(20, 9, 1, []), Received(1, [(11, 1)], NOW_MS), SnapshotEnded(0))

    assert kinds(history, Purged(11)) == ["purge"]


def test_events_of_single_messages_are_those_of_the_whole_history() -> None:
    for offset in range(120):
        whole, mine = QueueHistory(), MessageHistory(0, offset)
        for frame in FRAMES:
            expected = [each for each in whole.events(5, frame) if each.offset == offset]
            found = list(mine.events(5, frame))
            assert [each for each in found if each in expected] == expected
