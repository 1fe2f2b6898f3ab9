"""Tests of what goes between the core and its shell."""

import pytest

from tests.coordinator.raft.samples import A, B, at
from tidelog.coordinator.raft.ready import HardState, Ready, Write


@pytest.mark.parametrize(
    ("kept", "promised", "is_covered"),
    [
        (HardState(5), HardState(5), True),
        (HardState(5, A), HardState(5), True),
        (HardState(5, A), HardState(5, A), True),
        (HardState(5, A), HardState(5, B), False),
        (HardState(5), HardState(5, A), False),
        (HardState(6), HardState(5, A), True),
        (HardState(4, A), HardState(5), False),
    ],
)
def test_a_promise_is_kept_by_the_same_vote_or_a_later_term(
    kept: HardState, promised: HardState, is_covered: bool
) -> None:
    assert kept.covers(promised) is is_covered


def test_ready_is_empty_when_there_is_nothing_to_do() -> None:
    write = Write(HardState(1), None, (), at(0, 0))

    assert Ready(None, (), None, (), ()).is_empty
    assert not Ready(write, (), None, (), ()).is_empty
