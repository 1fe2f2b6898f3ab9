"""Bounded counts of objects: no count falls, and none is lost."""

from collections import Counter
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.metrics.object_counts import IDLE_S, ObjectCounts
from tidelog.broker.metrics.topic_totals import TopicTotals

TRAFFIC = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 9)))


def total(counts: ObjectCounts[TopicTotals]) -> int:
    return counts.other.sent_bytes + sum(each.sent_bytes for _, each in counts)


def forget_idle(
    counts: ObjectCounts[TopicTotals],
    *,
    now: float,
    is_empty: Callable[[str], bool],
    exists: Callable[[str], bool] = lambda _: True,
) -> int:
    """Return the number of steps."""
    return len(list(counts.forget_idle(now=now, exists=exists, is_empty=is_empty)))


@given(TRAFFIC, st.integers(0, 6))
def test_the_sum_of_all_series_is_all_traffic(traffic: list[tuple[str, int]], maximum: int) -> None:
    counts = ObjectCounts(TopicTotals, maximum=maximum)

    for name, size in traffic:
        counts.of(name).sent_bytes += size

    assert total(counts) == sum(size for _, size in traffic)
    assert len(counts) <= maximum
    expected = Counter[str]()
    for name, size in traffic:
        expected[name] += size
    assert all(each.sent_bytes == expected[name] for name, each in counts)


def test_an_object_gets_series_when_there_is_room_again() -> None:
    counts = ObjectCounts(TopicTotals, maximum=1)
    counts.of("a").sent_bytes += 1
    counts.of("b").sent_bytes += 2
    forget_idle(counts, now=0, is_empty=lambda _: True)

    forget_idle(counts, now=IDLE_S - 1, is_empty=lambda _: True)
    assert "a" in counts
    forget_idle(counts, now=IDLE_S, is_empty=lambda _: True)
    counts.of("b").sent_bytes += 4

    assert [(name, each.sent_bytes) for name, each in counts] == [("b", 4)]
    assert counts.other.sent_bytes == 2


def test_objects_with_traffic_data_or_thresholds_keep_their_series() -> None:
    counts = ObjectCounts(TopicTotals)
    counts.pinned = {"pinned"}
    for name in ("busy", "full", "idle", "pinned"):
        counts.of(name).sent_bytes += 1

    for hour in range(3):
        counts.of("busy").sent_bytes += 1
        forget_idle(counts, now=hour * IDLE_S, is_empty=lambda name: name != "full")

    assert {name for name, _ in counts} == {"busy", "full", "pinned"}


def test_pinned_objects_have_series_beyond_the_maximum() -> None:
    counts = ObjectCounts(TopicTotals, maximum=0)
    counts.pinned = {"pay"}

    counts.of("pay").sent_bytes += 1
    counts.of("mail").sent_bytes += 1

    assert {name for name, _ in counts} == {"pay"}


def test_deleted_objects_lose_their_counts_at_once() -> None:
    counts = ObjectCounts(TopicTotals, maximum=1)
    counts.pinned = {"gone"}
    counts.of("gone").sent_bytes += 1

    forget_idle(counts, now=0, is_empty=lambda _: False, exists=lambda _: False)

    assert list(counts) == []
    counts.of("next").sent_bytes += 1
    assert "next" in counts


def test_very_many_objects_are_looked_at_in_steps() -> None:
    counts = ObjectCounts(TopicTotals, maximum=5_000)
    for number in range(5_000):
        counts.of(f"topic{number}").sent_bytes += 1

    assert forget_idle(counts, now=0, is_empty=lambda _: True) == 5
