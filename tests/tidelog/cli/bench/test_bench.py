"""`tidelog bench`: the figures, and the end of its temporary topics and queue."""

import json
import os
import signal

import click
import pytest

from tidelog.cli import main
from tidelog.cli.bench.figures import Latencies, Plan, Rate
from tidelog.cli.bench.measures import measure
from tidelog.cli.client import ask

Printed = pytest.CaptureFixture[str]

RATES = ("produce", "consume", "queue_send", "queue_receive_and_delete")


def temporary(capsys: Printed) -> list[str]:
    """Return the names of the topics and queues that a run has left."""
    capsys.readouterr()
    for kind in ("topic", "queue"):
        assert main.run([kind, "list", "--prefix", "tidelog-bench-", "--names"]) == 0
    return capsys.readouterr().out.split()


@pytest.mark.usefixtures("at_broker")
@pytest.mark.parametrize("limit", [("--seconds", "0.2"), ("--records", "50")])
def test_every_figure_counts_what_was_done_and_nothing_is_left(
    limit: tuple[str, str], capsys: Printed
) -> None:
    line = ["bench", *limit, "--size", "10", "--batch", "5", "--partitions", "2", "--json"]

    assert main.run(line) == 0

    found = json.loads(capsys.readouterr().out)
    for name in RATES:
        rate = found[name]
        assert rate["count"] >= (50 if limit[0] == "--records" else 1)
        assert rate["per_second"] == pytest.approx(rate["count"] / rate["seconds"])
        assert rate["mb_per_second"] == pytest.approx(rate["per_second"] * 10 / 1e6)
    latency = found["latency"]
    assert latency["records"] > 0
    assert 0 < latency["p50_ms"] <= latency["p99_ms"]
    assert found["options"]["partitions"] == 2
    assert temporary(capsys) == []


@pytest.mark.usefixtures("at_broker")
def test_the_table_says_what_was_measured(capsys: Printed) -> None:
    assert main.run(["bench", "--seconds", "0.1", "--acks", "1", "--compression", "lz4"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 partition, values of 100 bytes, batches of 100, acks 1, lz4"
    assert lines[2].split() == ["FIGURE", "RATE", "MB/S", "P50", "P99", "MEASURED"]
    assert [line.split("  ")[0] for line in lines[3:]] == [
        "produce",
        "consume",
        "produce to consume",
        "queue: send",
        "queue: receive and delete",
    ]
    assert "records in 0." in lines[3]


@pytest.mark.usefixtures("at_broker")
@pytest.mark.parametrize("phase", ["produce", "queue: receive and delete"])
def test_ctrl_c_deletes_the_temporary_topics(
    phase: str, broker_address: str, capsys: Printed
) -> None:
    before = signal.getsignal(signal.SIGINT)
    seconds = 30.0 if phase == "produce" else 0.1
    plan = Plan(
        seconds=seconds,
        count_max=None,
        size_bytes=10,
        batch=5,
        acks="all",
        partitions=1,
        compression="none",
    )

    def interrupt(name: str) -> None:
        if name == phase:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(click.exceptions.Exit):
        ask(lambda client: measure(client, plan, interrupt), broker=broker_address)

    signal.signal(signal.SIGINT, before)
    assert temporary(capsys) == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("bench --seconds 1 --records 1", "--seconds and --records exclude each other"),
        ("bench --size 1000000 --batch 1000", "give a smaller --batch"),
    ],
)
def test_options_that_exclude_each_other_are_refused(
    line: str, problem: str, capsys: Printed
) -> None:
    assert main.run(line.split()) == 2
    assert problem in capsys.readouterr().err


def test_a_quantile_is_the_time_that_so_many_records_stay_within() -> None:
    latencies = Latencies(sorted_s=[number / 1000 for number in range(1, 101)])

    assert latencies.quantile_ms(0.5) == pytest.approx(51)
    assert latencies.quantile_ms(0.99) == pytest.approx(100)
    assert Latencies(sorted_s=[]).quantile_ms(0.5) is None


def test_a_rate_without_time_is_zero() -> None:
    assert Rate(count=3, seconds=0.0, size_bytes=1).per_second == 0
