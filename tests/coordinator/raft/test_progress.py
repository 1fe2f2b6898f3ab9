"""The leader's state of one follower."""

import pytest

from tidelog.coordinator.raft.progress import Progress, ProgressState, Window


def progress(next_index: int = 11) -> Progress:
    return Progress(next_index=next_index, window=Window(2, 100), now_ticks=0)


def test_a_window_is_full_by_messages_or_by_bytes() -> None:
    by_messages, by_bytes = Window(2, 100), Window(2, 100)
    for window in (by_messages, by_bytes):
        window.add(1, 1)
        window.free_to(1)

    by_messages.add(2, 1)
    by_messages.add(3, 1)
    by_bytes.add(2, 100)

    assert by_messages.is_full
    assert by_bytes.is_full


def test_a_window_grows_by_one_message_for_each_answer_and_shrinks_when_cleared() -> None:
    window = Window(4, 100)
    rooms: list[int] = []
    for first in (10, 20, 30, 40):
        sent: list[int] = []
        while not window.is_full:
            window.add(first + len(sent), 1)
            sent.append(first + len(sent))
        rooms.append(len(sent))
        window.free_to(first + 9)
    window.clear()
    window.add(50, 1)

    assert rooms == [1, 2, 4, 4]
    assert window.is_full


def test_an_empty_window_takes_a_message_of_any_size() -> None:
    window = Window(1, 10)

    window.add(1, 1000)

    assert window.is_full


def test_an_answer_frees_the_window_up_to_its_index() -> None:
    window = Window(10, 100)
    for index in range(2):
        window.add(index, 1)
        window.free_to(index)
    for index in (3, 6, 9):
        window.add(index, 40)

    window.free_to(6)

    assert len(window) == 1
    assert not window.is_full


def test_a_probe_that_is_answered_leads_to_replication() -> None:
    follower = progress()

    follower.received(10, 8, follower.attempt)

    assert follower.state is ProgressState.REPLICATE
    assert (follower.match_index, follower.next_index) == (8, 11)


@pytest.mark.parametrize("attempt", [0, 1])
def test_an_answer_to_an_earlier_attempt_does_not_end_probing(attempt: int) -> None:
    follower = progress()
    follower.refused(10, 8, 1)

    follower.received(4, 4, attempt)

    assert follower.state is ProgressState.PROBE
    assert (follower.match_index, follower.next_index) == (4, 8)


def test_a_refusal_moves_the_next_index_back_to_the_hint() -> None:
    follower = progress()

    follower.refused(10, 5, 1)
    assert follower.next_index == 5

    follower.refused(4, 9, 2)
    assert follower.next_index == 4


def test_of_many_refusals_of_one_attempt_only_the_first_counts() -> None:
    """Messages that overtake each other are all refused; the window is sent again only once."""
    follower = progress()
    follower.received(10, 10, 1)

    follower.refused(20, 14, 1)
    follower.received(13, 10, 2)
    follower.refused(25, 11, 1)

    assert follower.state is ProgressState.REPLICATE
    assert follower.next_index == 14


@pytest.mark.parametrize("match", [9, 10])
def test_the_match_never_falls_and_stays_below_the_next(match: int) -> None:
    follower = progress()
    follower.received(match, match, 1)

    follower.received(5, 3, 1)
    follower.become_probe(2)

    assert (follower.match_index, follower.next_index) == (match, match + 1)


def test_a_follower_leaves_the_snapshot_state_when_it_has_the_snapshot() -> None:
    follower = progress(3)
    follower.become_snapshot(20, now_ticks=5)

    states: list[ProgressState] = []
    for index in (12, 20):
        follower.received(index, index, 0)
        states.append(follower.state)

    assert states == [ProgressState.SNAPSHOT, ProgressState.PROBE]
    assert follower.next_index == 21


def test_a_follower_with_an_unsynced_snapshot_gets_the_entry_behind_it_next() -> None:
    follower = progress(3)
    follower.become_snapshot(20, now_ticks=5)

    follower.received(20, 12, 0)

    assert (follower.match_index, follower.next_index) == (12, 21)


def test_refusals_do_not_change_a_follower_that_waits_for_a_snapshot() -> None:
    follower = progress(3)
    follower.become_snapshot(20, now_ticks=5)

    follower.refused(2, 1, 1)

    assert follower.state is ProgressState.SNAPSHOT
