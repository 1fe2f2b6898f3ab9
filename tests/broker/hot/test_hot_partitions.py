"""Tests of the decision which partitions are hot, and of their rates."""

import pytest

from tidelog.broker.hot.hot_partitions import (
    BYTES_PER_S_MIN,
    HotPartitions,
    burdens_broker,
    is_skewed,
)
from tidelog.broker.hot.traffic_rate import TrafficRate
from tidelog.broker.metrics.object_counts import ObjectCounts
from tidelog.broker.metrics.topic_totals import TopicTotals
from tidelog.broker.partitions.traffic import PartitionTraffic

MB = 1e6


def traffic_of() -> PartitionTraffic:
    return PartitionTraffic(ObjectCounts(TopicTotals), "orders")


def test_a_partition_burdens_its_broker_with_a_tenth_of_its_traffic_if_that_is_much() -> None:
    assert burdens_broker(11 * MB, 100 * MB)
    assert not burdens_broker(9 * MB, 100 * MB)
    assert not burdens_broker(BYTES_PER_S_MIN, BYTES_PER_S_MIN)


@pytest.mark.parametrize(
    ("rate", "others", "is_hot"),
    [
        (10, [1, 2, 3], True),
        (6, [1, 2, 3], False),
        (10, [3], True),  # The other one of two.
        (10, [0, 0, 9], True),
        (10, [9, 9, 0], False),
        (10, [], False),  # A topic of one partition has no skew.
    ],
)
def test_a_skewed_partition_has_three_times_the_median_of_the_others(
    rate: float, others: list[float], is_hot: bool
) -> None:
    assert is_skewed(rate, others) is is_hot


def test_a_partition_is_hot_after_a_minute_and_cools_after_another() -> None:
    hot: HotPartitions[str] = HotPartitions()

    assert hot.update(["a"], 0) == ([], [])
    assert hot.update(["a"], 59) == ([], [])
    assert hot.update(["a"], 60) == (["a"], [])
    assert list(hot.hot) == ["a"]
    assert hot.update([], 70) == ([], [])
    assert hot.update([], 129) == ([], [])
    assert hot.update([], 130) == ([], ["a"])
    assert not hot.hot


def test_an_interruption_begins_the_minute_again() -> None:
    hot: HotPartitions[str] = HotPartitions()
    hot.update(["a"], 0)
    hot.update([], 30)

    assert hot.update(["a"], 40) == ([], [])
    assert hot.update(["a"], 99) == ([], [])
    assert hot.update(["a"], 100) == (["a"], [])


def test_a_hot_partition_with_a_quiet_moment_stays_hot() -> None:
    hot: HotPartitions[str] = HotPartitions()
    hot.update(["a"], 0)
    hot.update(["a"], 60)
    hot.update([], 70)
    hot.update(["a"], 80)

    assert hot.update([], 131) == ([], [])


def test_a_removed_partition_is_not_hot() -> None:
    hot: HotPartitions[str] = HotPartitions()
    hot.update(["a", "b"], 0)
    hot.update(["a", "b"], 60)

    assert hot.remove("a")
    assert not hot.remove("c")
    assert list(hot.hot) == ["b"]


def test_a_rate_reaches_half_of_new_traffic_after_its_half_life() -> None:
    traffic, rate = traffic_of(), TrafficRate(0.0)
    for second in range(1, 31):
        traffic.received_bytes += 1_000
        traffic.received_records += 10
        traffic.sent(500)
        rate.update(traffic, float(second))

    assert rate.received_bytes_per_s == pytest.approx(500)
    assert rate.received_records_per_s == pytest.approx(5)
    assert rate.bytes_per_s == pytest.approx(750)


def test_a_rate_does_not_depend_on_the_times_of_its_updates() -> None:
    traffic, often, rarely = traffic_of(), TrafficRate(0.0), TrafficRate(0.0)
    for second in range(1, 61):
        traffic.sent(1_000)
        often.update(traffic, float(second))
    rarely.update(traffic, 60.0)

    assert rarely.sent_bytes_per_s == pytest.approx(often.sent_bytes_per_s)


def test_the_rate_of_an_idle_partition_ends_at_zero() -> None:
    traffic, rate = traffic_of(), TrafficRate(0.0)
    traffic.sent(1_000)
    rate.update(traffic, 1.0)
    rate.update(traffic, 2_000.0)

    assert rate.bytes_per_s == 0
