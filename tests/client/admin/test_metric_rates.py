"""Rates and quantiles between two readings of metrics."""

import pytest

from tidelog.client.admin.metric_rates import MetricRates, quantile_of
from tidelog.client.admin.metrics import BrokerMetrics
from tidelog.wire.errors import ConnectError
from tidelog.wire.messages.metrics import MetricFamily, MetricHistogram, MetricSample

START = "process_start_time_seconds"
BOUNDS = [0.001, 0.01, 0.1]


def reading(
    time_s: float, *, started_at: float = 1.0, **series: float | dict[str, float]
) -> BrokerMetrics:
    """Return a reading with metrics by name; a dictionary has values by label."""
    families = {
        name: MetricFamily(
            name,
            "counter",
            ["topic"] if isinstance(value, dict) else [],
            [MetricSample([label], each) for label, each in value.items()]
            if isinstance(value, dict)
            else [MetricSample([], value)],
        )
        for name, value in {START: started_at, **series}.items()
    }
    return BrokerMetrics(1, families, time_s)


def observed(time_s: float, **counts: list[int]) -> BrokerMetrics:
    """Return a reading with cumulative counts by API."""
    samples = [
        MetricSample([name], 0.0, MetricHistogram(BOUNDS, each, 0.0))
        for name, each in counts.items()
    ]
    return BrokerMetrics(1, {"h": MetricFamily("h", "histogram", ["api"], samples)}, time_s)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 10.0}, {"a": 30.0}, {("a",): 5.0}),
        ({"a": 10.0}, {"a": 10.0}, {("a",): 0.0}),
        ({"a": 10.0}, {"a": 8.0}, {("a",): 2.0}),
        ({"a": 10.0}, {"a": 10.0, "new": 4.0}, {("a",): 0.0, ("new",): 1.0}),
        ({"gone": 10.0}, {}, {}),
    ],
    ids=["grown", "idle", "reset", "new", "gone"],
)
def test_counters_have_rates_that_are_never_negative(
    before: dict[str, float], after: dict[str, float], expected: dict[tuple[str, ...], float]
) -> None:
    rates = MetricRates(reading(100, c=before), reading(104, c=after))

    assert rates.elapsed_s == 4
    assert rates.rates("c") == expected


@pytest.mark.parametrize(
    "before",
    [
        None,
        BrokerMetrics(1, error=ConnectError("no answer")),
        reading(100, started_at=2.0, c=50.0),
        reading(104, c=50.0),
        reading(500_000, c=50.0),
    ],
    ids=["first", "no answer", "restarted", "same moment", "another clock"],
)
def test_a_broker_without_an_earlier_reading_of_its_process_has_no_rates(
    before: BrokerMetrics | None,
) -> None:
    rates = MetricRates(before, reading(104, c=60.0))

    assert (rates.elapsed_s, rates.rates("c"), rates.quantile("c", 0.99)) == (None, None, None)
    assert rates.values("c") == {(): 60.0}


def test_a_metric_that_a_broker_does_not_have_has_no_series() -> None:
    rates = MetricRates(reading(100), reading(104))

    assert (rates.rates("c"), rates.values("c"), rates.quantile("c", 0.5)) == ({}, {}, None)


@pytest.mark.parametrize(
    ("counts", "quantile", "expected"),
    [
        ([100, 100, 100, 100], 0.99, 0.00099),
        ([0, 100, 100, 100], 0.5, 0.001 + 0.009 * 0.5),
        ([50, 90, 100, 100], 0.95, 0.01 + 0.09 * 0.5),
        ([50, 90, 100, 100], 0.5, 0.001),
        ([0, 0, 0, 10], 0.99, 0.1),
        ([0, 0, 0, 0], 0.99, None),
        ([], 0.99, None),
    ],
    ids=["first bucket", "middle", "last bucket", "at a bound", "above all", "none", "no series"],
)
def test_a_quantile_is_interpolated_within_its_bucket(
    counts: list[int], quantile: float, *, expected: float | None
) -> None:
    found = quantile_of(BOUNDS, counts, quantile)

    assert found == (None if expected is None else pytest.approx(expected))


def test_a_quantile_is_that_of_all_series_since_the_reading_before() -> None:
    before = observed(100, PRODUCE=[1000, 1000, 1000, 1000])
    after = observed(101, PRODUCE=[1000, 1050, 1050, 1050], FETCH=[0, 0, 50, 50])

    rates = MetricRates(before, after)

    assert rates.quantile("h", 0.25) == pytest.approx(0.001 + 0.009 / 2)
    assert rates.quantile("h", 0.75) == pytest.approx(0.01 + 0.09 / 2)


def test_a_histogram_that_was_reset_counts_from_0() -> None:
    before, after = observed(100, A=[0, 90, 90, 90]), observed(101, A=[10, 10, 10, 10])

    assert MetricRates(before, after).quantile("h", 0.5) == pytest.approx(0.0005)
