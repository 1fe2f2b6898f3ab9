"""The comparison of a run with an earlier one."""

import pytest

from bench.peers.earlier import changes
from bench.peers.report import make_report
from bench.peers.results import RowId, RowResult

_ROW = RowId("queues", "memory-one", "batch 010 workers 08")


def _result(metric: str, *ours: float, peer: str = "redis") -> RowResult:
    samples = [{metric: each} for each in ours]
    theirs = [{metric: 100.0}] * len(ours)
    return RowResult(_ROW, "batches of 10", peer, samples, theirs, is_quick=False)


def test_only_figures_that_were_won_are_compared() -> None:
    won, lost = _result("worked", 200.0, 200.0), _result("worked", 50.0, 50.0, peer="nats")
    now = [_result("worked", 180.0, 180.0), _result("worked", 40.0, 40.0, peer="nats")]

    (change,) = changes([won, lost], now, ["worked"])

    assert change.share == pytest.approx(0.9)
    assert not change.is_kept
    assert not change.overlaps


def test_a_latency_is_kept_when_it_does_not_grow() -> None:
    then, now = _result("p50", 50.0, 60.0), _result("p50", 50.0, 56.0)

    (change,) = changes([then], [now], ["p50"])

    assert change.is_kept
    assert change.overlaps


def test_a_result_that_was_not_measured_again_is_no_change() -> None:
    result = _result("worked", 200.0)

    assert not changes([result], [result], ["worked"])


def test_the_report_lists_what_was_not_kept() -> None:
    then, now = _result("worked", 200.0, 220.0), _result("worked", 180.0, 180.0)

    text = make_report([now], [], earlier=[then]).text

    assert "0 of 1 figures" in text
    assert (
        "| memory-one: batches of 10: messages sent, received and deleted a second | redis" in text
    )
