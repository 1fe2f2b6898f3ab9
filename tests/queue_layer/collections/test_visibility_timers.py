"""Visibility timers: returned in order and once; obsolete timers do not accumulate."""

import pytest

from tidelog.queue_layer.collections import visibility_timers
from tidelog.queue_layer.collections.visibility_timers import VisibilityTimers


class Current:
    """Set of current timers, and the answers of `is_current`."""

    def __init__(self) -> None:
        self.kept: set[tuple[int, int]] = set()
        self.deadlines = VisibilityTimers(self.is_current)

    def is_current(self, time_ms: int, first: int) -> bool:
        return (time_ms, first) in self.kept

    def add(self, time_ms: int, first: int) -> None:
        self.kept.add((time_ms, first))
        self.deadlines.add(time_ms, first)


def test_due_timers_are_returned_in_order_and_once() -> None:
    current = Current()
    for time_ms, first in [(30, 1), (10, 2), (20, 3), (10, 2)]:
        current.add(time_ms, first)

    assert current.deadlines.next_ms() == 10
    assert current.deadlines.pop_due(20) == [(10, 2), (20, 3)]
    assert current.deadlines.next_ms() == 30
    assert current.deadlines.pop_due(29) == []


def test_obsolete_timers_are_skipped() -> None:
    current = Current()
    current.add(10, 1)
    current.add(20, 2)
    current.kept.discard((10, 1))

    assert current.deadlines.next_ms() == 20
    assert current.deadlines.pop_due(100) == [(20, 2)]
    assert current.deadlines.next_ms() is None


def test_obsolete_timers_do_not_accumulate() -> None:
    current = Current()
    for number in range(100_000):
        current.add(number, number)
        current.kept.discard((number - 50, number - 50))

    assert len(current.deadlines) < 3000
    assert len(current.deadlines.pop_due(10**9)) == 50


def test_clear_removes_all_timers() -> None:
    current = Current()
    current.add(10, 1)

    current.deadlines.clear()

    assert current.deadlines.next_ms() is None


def test_filled_timers_are_returned_in_order() -> None:
    current = Current()
    current.add(5, 9)
    current.kept = {(30, 1), (10, 2), (20, 3)}

    current.deadlines.fill([(30, 1), (10, 2), (20, 3)])

    assert current.deadlines.pop_due(100) == [(10, 2), (20, 3), (30, 1)]


def test_time_of_counts_current_timers_only() -> None:
    current = Current()
    for first in range(5):
        current.add(10 * first, first)
    current.add(10, 1)
    current.kept.discard((20, 2))
    deadlines = current.deadlines

    assert deadlines.time_of(2, 100) == 10
    assert deadlines.time_of(3, 100) == 30
    assert deadlines.time_of(3, 29) == 29
    assert deadlines.time_of(9, 100) == 100
    assert deadlines.pop_due(100) == [(0, 0), (10, 1), (30, 3), (40, 4)]


def test_free_time_avoids_crowded_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visibility_timers, "CROWD", 3)
    current = Current()

    chosen: list[int] = []
    for first in range(8):
        time_ms = current.deadlines.free_time(10)
        chosen.append(time_ms)
        current.add(time_ms, first)
    assert chosen == [10, 10, 10, 11, 11, 11, 12, 12]
    assert current.deadlines.free_time(9) == 9

    current.deadlines.pop_due(12)
    assert current.deadlines.free_time(10) == 10


def test_only_crowded_times_are_kept_of_very_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(visibility_timers, "CROWD", 3)
    monkeypatch.setattr(visibility_timers, "_COUNTED_MAX", 10)
    current = Current()
    for first in range(3):
        current.add(10, first)
    for time_ms in range(20, 40):
        current.add(time_ms, time_ms)

    assert len(vars_of(current.deadlines)["_counts"]) <= 10
    assert current.deadlines.free_time(10) == 11


def vars_of(deadlines: VisibilityTimers) -> dict[str, dict[int, int]]:
    """Return the counters of the timers."""
    return {name: getattr(deadlines, name) for name in ("_counts", "_later")}
