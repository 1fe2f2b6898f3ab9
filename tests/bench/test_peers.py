"""Pure parts of the benchmark beside other systems."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench.figures import Spread
from bench.peers.goals import Goal, advantage, verdicts
from bench.peers.load import Expiries, Gate, Pace, Shared, delayed_values, due_value, make_values
from bench.peers.measuring import rotated, scaled
from bench.peers.native import consumed_rate, produced_rate
from bench.peers.nats import is_clustered
from bench.peers.orders import Order, Schedule, percentile, percentiles
from bench.peers.own import TIDELOG
from bench.peers.plot import Bar, bars_svg
from bench.peers.redis import is_in_sync
from bench.peers.report import make_report
from bench.peers.results import RowId, RowResult, Sample, Store
from bench.peers.spark import rows_of

_ROW = RowId("rates", "memory-one", "100 B 01 batches")


def _order(**more: object) -> Order:
    given = {"system": "kafka", "role": "send", "addresses": "", "name": "x", "promise": "", **more}
    return Order(**given)  # type: ignore[arg-type]


def _result(ours: list[float], theirs: list[float], metric: str = "produced") -> RowResult:
    return _result_of([{metric: each} for each in ours], [{metric: each} for each in theirs])


def _result_of(ours: list[Sample], theirs: list[Sample], peer: str = "kafka") -> RowResult:
    return RowResult(_ROW, "100 B, 1 partition", peer, ours, theirs, is_quick=True)


def test_a_ratio_compares_consecutive_measurements() -> None:
    result = _result([10, 40, 90], [10, 20, 30])
    assert result.ratio("produced") == Spread(2, 1, 3)


def test_a_ratio_to_zero_is_undefined() -> None:
    result = _result([0.5, 0.5], [0.0, 0.0], "idle_cpu")
    assert result.ratio("idle_cpu").median == pytest.approx(500)


def test_a_percentile_is_a_measured_value() -> None:
    ordered = [float(number) for number in range(1, 1001)]
    assert percentile(ordered, 0.5) == 500
    assert percentile(ordered, 0.99) == 990
    assert percentile(ordered, 0.999) == 999
    assert percentile(ordered, 1.0) == 1000
    assert percentile([7.0], 0.5) == 7


def test_latencies_are_summarised_in_milliseconds() -> None:
    assert percentiles([0.002, 0.001, 0.003])["p50"] == 2
    assert percentiles([]) == {}


def test_a_message_is_due_at_its_scheduled_time_after_a_stall() -> None:
    schedule = Schedule(start=100.0, rate=50.0, count=1000)
    assert schedule.due_at(0) == 100.0
    assert schedule.due_at(25) == 100.5
    assert schedule.due_count(99.9) == 0
    assert schedule.due_count(100.0) == 1
    # A pause of a second makes 50 messages due at once, each at its own time.
    assert schedule.due_count(101.0) - schedule.due_count(100.0) == 50
    assert schedule.due_count(1e6) == 1000


def test_latency_counts_from_when_a_message_was_due() -> None:
    gate = Gate()
    gate.saw(due_value(-1.0e9, b"." * 100))  # A message without a due time is ignored.
    gate.saw(b"." * 100)
    assert not gate.arrived
    value = due_value(1.5, b"." * 100)
    assert len(value) == 100
    gate.saw(value)
    assert len(gate.arrived) == 1


def test_due_messages_are_taken_once_and_some_carry_their_due_time() -> None:
    pace = Pace(_order(count=1_000, rate=1e9, sample_every=10), 0.0)
    taken = pace.take(600)
    assert len(taken) == 600
    assert sum(value[:20].isdigit() for value in taken) == 60
    over_after = [pace.is_over, len(pace.take(600)), pace.is_over]
    assert over_after == [False, 400, True]
    assert pace.delay() == 0


def test_a_delayed_message_carries_the_end_of_its_delay() -> None:
    gate = Gate()
    for delay_s in (-3.0, 3.0):
        first, second = delayed_values(_order(value_bytes=100), 2, delay_s)
        assert first == second
        gate.saw(first)
    late, early = gate.arrived
    assert late >= 3.0
    assert late - early == pytest.approx(6.0, abs=1.0)


def test_redelivery_latency_counts_from_the_end_of_the_requested_lease() -> None:
    gate = Gate()
    expiries = Expiries(gate, 2.0)
    expiries.took(-10.0, b"a")
    assert expiries.count == 1
    expiries.came_again(b"a")
    (late,) = gate.arrived
    assert late >= 8.0
    with pytest.raises(AssertionError, match="expired before all"):
        expiries.took(0.0, b"a")


def test_values_have_the_ordered_number_and_size() -> None:
    for size, count in ((100, 25_000), (1_000, 3), (64_000, 600)):
        values = make_values(_order(value_bytes=size, count=count))
        assert len(values) == count
        assert {len(value) for value in values} == {size}


def test_threads_share_all_messages_and_no_message_twice() -> None:
    shared = Shared(_order(count=25, batch=10))
    taken = [shared.take() for _ in range(4)]
    assert taken == [slice(0, 10), slice(10, 20), slice(20, 25), None]
    shared.done(24)
    assert not shared.is_done.is_set()
    shared.done(1)
    assert shared.is_done.is_set()


def test_the_order_of_systems_rotates() -> None:
    assert [rotated(["a", "b", "c"], number)[0] for number in range(4)] == ["a", "b", "c", "a"]
    assert rotated([], 3) == []


def test_the_number_of_messages_follows_the_rate_within_limits() -> None:
    assert scaled(123_456, 2, low=10, high=1_000_000) == 240_000
    assert scaled(3, 2, low=10, high=1_000_000) == 10
    assert scaled(1e9, 2, low=10, high=1_000_000) == 1_000_000


def test_a_goal_is_judged_by_the_median_in_the_direction_of_its_figure() -> None:
    fast, slow = _result([300, 300], [100, 100]), _result([150, 150], [100, 100])
    goal = Goal("rates", "100 B", "produced", 2.0, "kafka")
    assert [verdict.is_met for verdict in verdicts([fast], [goal])] == [True]
    (missed,) = verdicts([slow], [goal])
    assert not missed.is_met
    assert missed.missed_by == pytest.approx(2 / 1.5)
    cpu = Goal("rates", "100 B", "produce_us", 0.5, "kafka")
    (met,) = verdicts([_result([1, 1], [4, 4], "produce_us")], [cpu])
    assert met.is_met
    assert met.missed_by == pytest.approx(0.5)


def test_a_goal_without_a_peer_is_judged_by_the_best_one() -> None:
    goal = Goal("rates", "", "produced", 2.0)
    rows = [
        _result_of([{"produced": 10.0}], [{"produced": theirs}], peer)
        for peer, theirs in (("slow", 1.0), ("fast", 20.0))
    ]
    (verdict,) = verdicts(rows, [goal])
    assert verdict.result.peer == "fast"


def test_rates_are_parsed_from_the_second_half_of_the_output_of_kafka_tools() -> None:
    produced = (
        "Warmup first 50000 records. Steady state results will print after the complete summary.\n"
        "50000 records sent, 9999.0 records/sec (0.95 MB/sec), 2.0 ms avg latency.\n"
        "In steady state.\n"
        "100000 records sent, 12345.5 records/sec (1.18 MB/sec), 2.0 ms avg latency, 9 ms 99th.\n"
        "50000 steady state records sent, 20000.5 records/sec (1.91 MB/sec), 2.0 ms avg latency.\n"
    )
    assert produced_rate(produced) == 20000.5
    consumed = (
        "time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec\n"
        "2026-11-23 02:00:00:900, 0, 0.0, 0.0, 1, 0.2\n"
        "2026-11-23 02:00:01:100, 0, 1.9, 9.5, 20000, 99995.0\n"
        "2026-11-23 02:00:01:300, 0, 4.3, 12.0, 45000, 125000.0\n"
        "2026-11-23 02:00:01:500, 0, 9.5, 26.2, 100000, 275000.0\n"
    )
    assert consumed_rate(consumed) == pytest.approx(275_000)
    only_one = "\n".join(consumed.splitlines()[:2])
    for read, text in ((produced_rate, "no"), (consumed_rate, "no"), (consumed_rate, only_one)):
        with pytest.raises(RuntimeError, match="no rate"):
            read(text)


def test_nats_servers_are_ready_when_all_know_every_leader() -> None:
    text = '{"meta_cluster": {"name": "bench", "leader": "bench-2", "cluster_size": 3}}'
    assert is_clustered(text, 3)
    assert not is_clustered(text.replace("bench-2", ""), 3)
    assert not is_clustered(text.replace("3", "2"), 3)
    assert not is_clustered("{}", 3)


def test_a_redis_replica_is_ready_when_it_is_synced_with_an_append_only_file() -> None:
    lines = [
        "aof_enabled:1",
        "aof_rewrite_in_progress:0",
        "aof_rewrite_scheduled:0",
        "role:slave",
        "master_link_status:up",
    ]
    assert is_in_sync("\r\n".join(lines))
    others = [("up", "down"), ("enabled:1", "enabled:0"), ("progress:0", "progress:1")]
    for ready, other in others:
        assert not is_in_sync("\r\n".join(lines).replace(ready, other))


def test_only_tidelog_stores_an_extra_record() -> None:
    assert rows_of("tidelog", 400) == 401
    assert rows_of("kafka", 400) == 400


def test_less_is_better_for_cpu_and_latency() -> None:
    assert advantage(_result([1, 1], [4, 4], "produce_us"), "produce_us") == 4
    assert advantage(_result([1, 1], [4, 4]), "produced") == 0.25


def test_stored_results_are_loaded(tmp_path: Path) -> None:
    store = Store(tmp_path, machine="a machine", date="2026-11-23")
    store.versions = {"kafka": "4.3.1"}
    store.keep(_result([1, 2], [3, 4]))
    store.keep(_result([5, 6], [3, 4]))  # Measured again: it replaces the other one.
    (found,) = store.load()
    assert found.row == _ROW
    assert found.ours == [{"produced": 5}, {"produced": 6}]
    assert (found.machine, found.versions, found.date) == ("a machine", "4.3.1", "2026-11-23")


def test_a_report_has_goals_losses_ratios_and_settings() -> None:
    lost = _result_of(
        [{"produced": 50.0, "consumed": 900.0}], [{"produced": 100.0, "consumed": 300.0}]
    )
    report = make_report([lost], [TIDELOG])
    assert "1 of 2 are met" in report.text
    assert "missed by 4.00 times" in report.text
    assert (
        "| memory-one: 100 B, 1 partition | records produced a second | kafka | 2.00 |"
        in report.text
    )
    assert "0.50 (0.50 to 0.50) | 3.00 (3.00 to 3.00)" in report.text
    assert "50; 100 | 900; 300" in report.text
    assert "durability=fsync" in report.text
    for name in report.plots:
        assert f"(plots/{name})" in report.text


def test_an_empty_report_lists_no_systems() -> None:
    assert "measured beside: none" in make_report([], []).text


def test_the_report_summarises_the_profiles() -> None:
    assert "## Why\n" in make_report([], [], profiles="## Why\n").text


def test_a_plot_has_a_bar_for_each_row_on_its_side_of_one() -> None:
    svg = bars_svg("rates", [Bar("faster", 4, 3, 5), Bar("slower & <worse>", 0.25, 0.2, 0.3)])
    space = "{http://www.w3.org/2000/svg}"
    tree = ET.fromstring(svg)
    assert {"faster", "slower & <worse>"} <= {each.text for each in tree.iter(f"{space}text")}
    better, worse = [each for each in tree.iter(f"{space}rect") if "x" in each.attrib]
    assert float(worse.attrib["x"]) + float(worse.attrib["width"]) == pytest.approx(
        float(better.attrib["x"]), abs=0.2
    )
