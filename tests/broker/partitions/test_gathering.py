"""Tests of the decision whether a flush waits for further requests."""

from tidelog.broker.partitions.gathering import Gathering


def waits(gathering: Gathering, flush_count: int, *, served: int) -> list[bool]:
    """Return for each of some flushes whether it waits; each serves so many requests."""
    result: list[bool] = []
    for _ in range(flush_count):
        result.append(gathering.is_due())
        gathering.requested += served
        gathering.begins()
    return result


def test_flushes_wait_while_requests_come_together() -> None:
    assert waits(Gathering(), 40, served=2) == [True] * 40


def test_a_flush_of_a_lone_producer_begins_at_once_after_three_waits_in_vain() -> None:
    assert waits(Gathering(), 18, served=1) == [True] * 3 + [False] * 15


def test_one_flush_of_sixteen_looks_for_requests_that_come_together() -> None:
    gathering = Gathering()
    waits(gathering, 18, served=1)

    assert waits(gathering, 4, served=2) == [True] * 4


def test_requests_that_come_together_without_a_wait_bring_the_waits_back() -> None:
    gathering = Gathering()
    waits(gathering, 4, served=1)

    assert waits(gathering, 3, served=2) == [False, True, True]


def test_a_look_in_vain_leaves_the_next_flushes_at_once() -> None:
    gathering = Gathering()
    waits(gathering, 18, served=1)

    assert waits(gathering, 17, served=1) == [True] + [False] * 15 + [True]
