"""Sharing out among readers with different wishes; more of it in `test_assignors`."""

from tidelog.coordinator.groups.balanced_assignment import balance

A, B = (bytes([number]) * 16 for number in range(2))


def test_what_fewest_want_is_shared_out_first() -> None:
    shared = balance([[A], [A, B]], [[], []], {A: 2, B: 2})

    assert shared == [[(A, 0), (A, 1)], [(B, 0), (B, 1)]]


def test_what_is_held_stays_while_it_is_even() -> None:
    held = [[(A, 1)], [(A, 0), (B, 0)]]

    assert balance([[A], [A, B]], held, {A: 2, B: 1}) == held


def test_what_is_no_longer_wanted_or_there_goes() -> None:
    shared = balance([[A], [B]], [[(B, 0), (A, 5)], []], {A: 1, B: 1})

    assert shared == [[(A, 0)], [(B, 0)]]


def test_nobody_is_given_what_only_others_want() -> None:
    shared = balance([[A], [B]], [[], []], {A: 9, B: 1})

    assert [len(partitions) for partitions in shared] == [9, 1]
