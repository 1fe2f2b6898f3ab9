"""Expressions with metrics, labels or functions that do not fit are refused."""

import pytest

from tests.tools.expressions import complaints, metrics_of


@pytest.mark.parametrize(
    "expression",
    [
        'sum by (instance) (tidelog_partitions{state="leader"}) > 0',
        "rate(tidelog_queue_sent_total[5m])",
        "predict_linear(tidelog_disk_free_bytes[1h], 4 * 3600) < 0",
        "histogram_quantile(0.9, sum by (le) (rate(tidelog_loop_lag_seconds_bucket[5m])))",
        'label_replace(tidelog_queue_ready, "dead", "$1", "queue", "(.+)") > on (dead) vector(1)',
        'up{job="tidelog"} == 0',
    ],
)
def test_expressions_that_fit(expression: str) -> None:
    assert not list(complaints(expression))


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("tidelog_partition", "tidelog_partition is not in the catalog"),
        ("tidelog_loop_lag_seconds", "tidelog_loop_lag_seconds is not in the catalog"),
        ('tidelog_partitions{topic="a"}', "tidelog_partitions has no label topic"),
        ("sum by (topic) (tidelog_partitions)", "no metric has the label topic"),
        ("tidelog_queue_sent_total", "is a counter, and its function is none"),
        ("rate(tidelog_queue_ready[5m])", "is a gauge, and its function is rate"),
        ("sum(tidelog_queue_ready[5m])", "tidelog_queue_ready has a range without"),
        (
            "histogram_quantile(0.9, sum(rate(tidelog_loop_lag_seconds_bucket[5m])))",
            "histogram_quantile needs buckets by le",
        ),
    ],
)
def test_expressions_that_do_not_fit(expression: str, complaint: str) -> None:
    assert complaint in "\n".join(complaints(expression))


def test_names_in_texts_are_no_metrics() -> None:
    assert metrics_of('tidelog_queue_ready{queue="tidelog_x"} + tidelog_queue_dead') == {
        "tidelog_queue_ready",
        "tidelog_queue_dead",
    }
