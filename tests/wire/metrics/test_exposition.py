"""Metrics in the text format, read by the parser of Prometheus' own client."""

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tidelog.wire.metrics.exposition import expose
from tidelog.wire.metrics.metric import (
    Family,
    Histogram,
    Metric,
    MetricKind,
    family,
    single,
)

AGE = Metric("tidelog_age_seconds", MetricKind.GAUGE, "Age", ("queue", "owner"))
SENT = Metric("tidelog_sent_total", MetricKind.COUNTER, "Sent \\ messages\nof all queues")
WAIT = Metric(
    "tidelog_wait_seconds", MetricKind.HISTOGRAM, "Wait", ("api",), bounds=(0.001, 0.5, 2.0)
)


def text(*families: Family) -> str:
    return b"".join(expose(families)).decode()


def read(exposed: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for found in text_string_to_metric_families(exposed)
        for sample in found.samples
    }


@given(st.dictionaries(st.tuples(st.text(), st.text()), st.floats(allow_nan=False)))
def test_the_parser_reads_what_was_exposed(
    values: dict[tuple[str, str], float],
) -> None:
    found = read(text(family(AGE, values.items())))

    assert found == {
        (AGE.name, (("owner", owner), ("queue", queue))): value
        for (queue, owner), value in values.items()
    }


def test_help_and_kind_are_read() -> None:
    (found,) = text_string_to_metric_families(text(single(SENT, 7)))

    assert (found.name, found.type) == ("tidelog_sent", "counter")
    assert found.documentation == "Sent \\ messages\nof all queues"
    assert [sample.value for sample in found.samples] == [7]


def test_a_number_that_is_none_is_readable() -> None:
    assert math.isnan(read(text(single(SENT, math.nan)))["tidelog_sent_total", ()])


@given(st.lists(st.floats(min_value=0, max_value=10)))
def test_buckets_hold_the_observations_up_to_their_bound(observed: list[float]) -> None:
    histogram = Histogram(WAIT)
    for value in observed:
        histogram.observe(value)

    found = read(text(family(WAIT, [(("SEND",), histogram.value())])))

    for bound in WAIT.bounds:
        bucket = found[f"{WAIT.name}_bucket", (("api", "SEND"), ("le", repr(bound)))]
        assert bucket == sum(value <= bound for value in observed)
    assert found[f"{WAIT.name}_bucket", (("api", "SEND"), ("le", "+Inf"))] == len(observed)
    assert found[f"{WAIT.name}_count", (("api", "SEND"),)] == histogram.count == len(observed)
    assert math.isclose(found[f"{WAIT.name}_sum", (("api", "SEND"),)], sum(observed))


def test_long_texts_come_in_chunks() -> None:
    values = [((f"queue-{number}", ""), float(number)) for number in range(3_000)]

    chunks = list(expose([family(AGE, values)]))

    assert len(chunks) == 7
    assert all(chunk.endswith(b"\n") for chunk in chunks)
    assert len(read(b"".join(chunks).decode())) == 3_000


def test_no_metrics_are_no_text() -> None:
    assert list(expose([])) == []
