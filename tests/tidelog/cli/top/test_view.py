"""The tables and the JSON of `tidelog top`."""

import json
from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from rich.console import Console

from tests.tidelog.cli.top.readings import broker, cluster_of, reading
from tidelog.cli.top.activity import Activity, activity_of
from tidelog.cli.top.panels import SORT_KEYS, duration_text, rate_text
from tidelog.cli.top.view import ViewOptions, activity_as_json, picture, shared_lines
from tidelog.client.admin.metrics import BrokerMetrics
from tidelog.wire.errors import ConnectError

QUEUE_NAMES = [f"queue-{number}" for number in range(5)]


def queues(depths: Sequence[float]) -> Activity:
    """Return queues with so many messages, of which the first has the oldest."""
    names = [(f"queue-{number}",) for number in range(len(depths))]
    ready = dict(zip(names, depths, strict=True))
    ages = {name: 100.0 - number for number, name in enumerate(names)}
    before = broker(queue_sent_total=dict.fromkeys(names, 0.0))
    after = broker(
        time_s=102.0,
        queue_ready=ready,
        queue_oldest_message_age_seconds=ages,
        queue_sent_total=dict.fromkeys(names, 5.0),
    )
    return activity_of(reading(before), reading(after, at_s=2.0))


def lines_of(
    activity: Activity,
    options: ViewOptions | None = None,
    *,
    width: int | None = None,
    height: int | None = None,
    **texts: str,
) -> list[str]:
    """Return the lines of a picture."""
    console = Console(width=width or 1000, color_system=None)
    shown = picture(activity, options or ViewOptions(), width=width, height=height, **texts)
    with console.capture() as captured:
        console.print(shown)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_a_cluster_is_a_header_and_four_panels() -> None:
    lines = lines_of(queues([3.0]))

    assert lines[:3] == [
        "cluster 5f3a9c1e7b2d4f60a8c1e3d5: 1 of 1 brokers answer",
        "healthy; asked node 1",
        "",
    ]
    assert [line.split()[0] for line in lines if line][2:] == [
        *("NODE", "1", "TOPIC", "QUEUE", "queue-0", "GROUP"),
    ]
    assert "queue-0      3       0        0  1 min 40 s     2.5" in lines[-3]


def test_rates_errors_and_alerts_are_in_the_header() -> None:
    before = reading(broker(requests_total={("PRODUCE", "OK"): 0.0}))
    after = reading(
        broker(time_s=101.0, requests_total={("PRODUCE", "OK"): 1234.0}),
        BrokerMetrics(2, error=ConnectError("connection refused")),
    )
    activity = activity_of(before, after, alert_count=3)

    lines = lines_of(activity, notice="the figures are 9 s old")

    assert lines[0].endswith(": 1 of 2 brokers answer, 1,234 requests/s, 3 alerts")
    assert lines[2:4] == [
        "node 2 is missing in the figures: connection refused",
        "the figures are 9 s old",
    ]
    assert ["1", "controller", "5", "1,234"] in [line.split()[:4] for line in lines]
    assert ["2", "no", "answer", "5", "-"] in [line.split()[:5] for line in lines]


def test_queue_partitions_that_are_not_counted_yet_are_reported() -> None:
    activity = activity_of(
        None, reading(*(broker(each, queue_partitions_unknown=4.0) for each in (1, 2)))
    )

    assert lines_of(activity)[2].startswith("8 queue partitions not counted yet; ")


def test_an_unhealthy_cluster_has_its_reason_and_the_next_step() -> None:
    cluster = replace(cluster_of(), leaderless_count=2)

    lines = lines_of(activity_of(None, reading(broker(), cluster=cluster)))

    assert lines[1].startswith("unavailable: 2 of 12 partitions can be neither written nor read; ")


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        (None, ["queue-0", "queue-1", "queue-2"]),
        ("ready", ["queue-1", "queue-2", "queue-0"]),
        ("name", ["queue-0", "queue-1", "queue-2"]),
        ("bytes-in", ["queue-0", "queue-1", "queue-2"]),
    ],
)
def test_rows_are_sorted_by_the_column(sort: str | None, expected: list[str]) -> None:
    lines = lines_of(queues([1.0, 9.0, 4.0]), ViewOptions(("queues",), sort))

    assert [line.split()[0] for line in lines if line.startswith("queue-")] == expected


def test_unknown_values_come_last() -> None:
    groups = activity_of(
        None,
        reading(
            broker(
                group_members={("a",): 1.0, ("b",): 1.0, ("c",): 1.0},
                group_lag_records={("b", "t"): 3.0, ("c", "t"): 7.0},
            )
        ),
    )

    lines = lines_of(groups, ViewOptions(("groups",), "lag"))

    assert [line.split()[:2] for line in lines[-3:]] == [["c", "7"], ["b", "3"], ["a", "-"]]


def test_rows_beyond_the_limit_are_counted() -> None:
    lines = lines_of(queues([1.0] * 1000), ViewOptions(("queues",), limit=5))

    assert [line.split()[0] for line in lines[-6:-1]] == QUEUE_NAMES
    assert lines[-1] == "and 995 more queues"


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (100, ["QUEUE", "READY", "LEASED", "DELAYED", "OLDEST", "SENT/S", "RECEIVED/S"]),
        (60, ["QUEUE", "READY", "LEASED", "OLDEST", "SENT/S"]),
        (30, ["QUEUE", "READY"]),
        (5, ["QUEUE"]),
    ],
)
def test_narrow_terminals_leave_out_columns(width: int, columns: list[str]) -> None:
    lines = lines_of(queues([1.0] * 3), ViewOptions(("queues",)), width=width)

    assert lines[3].split()[: len(columns)] == columns
    assert all(len(line) <= width for line in lines)


def test_a_long_name_is_cut_before_columns_are_left_out() -> None:
    name = "x" * 249
    activity = activity_of(None, reading(broker(log_bytes={(name,): 5.0})))

    lines = lines_of(activity, ViewOptions(("topics",)), width=80)

    assert lines[-1].startswith("xxxxxxxxxxxxxxx")
    assert "…" in lines[-1]
    assert lines[-2].split()[-1] == "UNDER-REPLICATED"
    assert len(lines[-1]) <= 80


@pytest.mark.parametrize("height", [24, 30, 60])
def test_a_picture_is_not_higher_than_the_terminal(height: int) -> None:
    activity = queues([1.0] * 1000)

    lines = lines_of(activity, width=80, height=height, keys="q quit")

    assert len(lines) <= height
    assert lines[-1] == "q quit"


@pytest.mark.parametrize(
    ("wanted", "lines", "expected"),
    [
        ([3, 2], 10, [3, 2]),
        ([9, 1, 9], 10, [5, 1, 4]),
        ([1000], 10, [10]),
        ([4, 4], 0, [1, 1]),
        ([0, 9], 5, [0, 5]),
        ([], 5, []),
    ],
)
def test_panels_share_the_lines(wanted: list[int], lines: int, expected: list[int]) -> None:
    assert shared_lines(wanted, lines) == expected


def test_json_has_numbers_of_the_selected_panels() -> None:
    activity = queues([3.0, 4.0])

    found = json.loads(json.dumps(activity_as_json(activity, ViewOptions(("queues",), limit=1))))

    assert found == {
        "cluster_id": "5f3a9c1e7b2d4f60a8c1e3d5",
        "node_id": 1,
        "controller_id": 1,
        "health": {"severity": "healthy", "reason": "", "next_step": ""},
        "alert_count": None,
        "interval_s": 2,
        "uncounted_queue_partition_count": 0,
        "queue_count": 2,
        "queues": [
            {
                "name": "queue-0",
                "ready": 3,
                "leased": 0,
                "delayed": 0,
                "oldest_age_s": 100,
                "sent_per_s": 2.5,
                "received_per_s": None,
                "deleted_per_s": None,
                "redelivered_per_s": None,
                "empty_receives_per_s": None,
            }
        ],
    }


def test_every_column_has_a_field_and_can_be_sorted_by() -> None:
    activity = queues([1.0])

    for key in SORT_KEYS:
        assert lines_of(activity, ViewOptions(sort=key))


@pytest.mark.parametrize(
    ("per_s", "text"), [(0.0, "0"), (0.25, "0.2"), (9.94, "9.9"), (12345.6, "12,346")]
)
def test_low_rates_have_a_decimal(per_s: float, text: str) -> None:
    assert rate_text(per_s) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.00025, "0.2 ms"), (0.0465, "46 ms"), (1.25, "1.2 s")]
)
def test_durations_are_in_milliseconds_or_seconds(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
