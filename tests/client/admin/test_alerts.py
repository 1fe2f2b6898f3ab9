"""The alerts of one moment, and their changes."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from tests.client.admin.test_cluster_health import described, node
from tests.paths import ROOT
from tests.test_docs import anchors
from tests.wire.cluster_samples import EVENT
from tests.wire.queue_samples import DESCRIBE
from tidelog.client.admin.alerts import (
    SEVERITIES,
    Alert,
    AlertReport,
    AlertSeverity,
    DiskToCheck,
    GroupToCheck,
    changes,
    report,
)
from tidelog.client.admin.queue_counts import DescribedQueue, MessageCounts
from tidelog.client.admin.queue_counts import described as with_counts
from tidelog.wire.config.queue_config import effective_queue_settings
from tidelog.wire.messages.cluster_admin import DescribeClusterReply, LeaderlessPartitions
from tidelog.wire.messages.groups import DescribedGroup, PartitionProgress
from tidelog.wire.messages.transactions import NAMES_WARNED

NOW_MS = 1_700_000_000_000
MINUTE_MS = 60_000


def counts(
    *, visible: int = 0, in_flight: int = 0, delayed: int = 0, dead: int = 0, age_ms: int = 0
) -> MessageCounts:
    return MessageCounts(visible, in_flight, delayed, dead, NOW_MS - age_ms, age_ms)


def queue(found: MessageCounts | None, name: str = "payments", **settings: str) -> DescribedQueue:
    config = effective_queue_settings(settings, is_fifo=False)
    described_queue = replace(DESCRIBE[1].queues[0], name=name, config=config)
    return with_counts(described_queue, found)


def progress(*, lag_records: int | None, lag_ms: int | None) -> PartitionProgress:
    return PartitionProgress(b"t" * 16, 0, None, 0, 0, 100, lag_records, lag_ms, NOW_MS)


def group(overrides: Mapping[str, str], *partitions: PartitionProgress) -> GroupToCheck:
    members = DescribedGroup("billing", "empty", "", 0, 0, [], list(partitions))
    return GroupToCheck(overrides, members)


def alerts_of(
    cluster: DescribeClusterReply | None = None,
    *subjects: DescribedQueue | GroupToCheck | DiskToCheck,
    depths: Mapping[str, MessageCounts | None] | None = None,
) -> AlertReport:
    return report(
        cluster,
        [each for each in subjects if isinstance(each, DescribedQueue)],
        [each for each in subjects if isinstance(each, GroupToCheck)],
        disks=[each for each in subjects if isinstance(each, DiskToCheck)],
        depths=depths or {},
        now_ms=NOW_MS,
    )


@pytest.mark.parametrize(
    ("facts", "names"),
    [
        ({}, []),
        ({"controller_id": None}, ["NoController"]),
        ({"metadata_age_ms": 3001, "leaderless_count": 4}, ["NoController"]),
        ({"metadata_age_ms": None}, ["NoController"]),
        ({"leaderless_count": 2}, ["OfflinePartition"]),
        ({"unavailable_count": 1, "under_replicated_count": 1}, ["UnderMinIsr", "UnderReplicated"]),
        ({"nodes": [node(1), node(2, status="fenced")]}, ["BrokerDown"]),
        ({"nodes": [node(1), node(2, status="unknown")]}, ["BrokerDown"]),
        ({"nodes": [node(1), node(2, status="stopping")]}, []),
        ({"nodes": [node(1), replace(node(2), damaged_count=3)]}, ["DamageFound"]),
        ({"events": [replace(EVENT, kind="data_loss_accepted")]}, ["UncleanElection"]),
        ({"events": [replace(EVENT, kind="records_lost")]}, ["RecordsLost"]),
        ({"events": [replace(EVENT, kind="of_a_newer_broker")]}, ["RecordsLost"]),
    ],
)  # fmt: skip
def test_alerts_of_operators_follow_the_state_of_the_cluster(
    facts: dict[str, Any], names: list[str]
) -> None:
    found = alerts_of(described(**facts))

    assert [each.name for each in found.alerts] == names
    assert all(each.next_step and each.owner is None for each in found.alerts)


@pytest.mark.parametrize(
    ("disk", "names"),
    [
        (DiskToCheck(2, 150, 1000, 100, 0), []),
        (DiskToCheck(2, 149, 1000, 100, 0), ["DiskAlmostFull"]),
        (DiskToCheck(2, 99, 1000, 100, 3), ["DiskReadOnly"]),
        (DiskToCheck(2, 900, 1000, 0, 1), ["DiskReadOnly"]),
        (DiskToCheck(2, 0, 0, 0, 0), []),
    ],
)
def test_a_disk_without_room_fires(disk: DiskToCheck, names: list[str]) -> None:
    found = alerts_of(described(), disk)

    assert [each.name for each in found.alerts] == names
    assert all(each.subject == "node 2" for each in found.alerts)


def test_many_names_of_transactions_fire_before_the_limit() -> None:
    def of(count: int) -> AlertReport:
        return report(described(), [], [], name_count=count, depths={}, now_ms=NOW_MS)

    assert of(NAMES_WARNED).alerts == ()
    (found,) = of(NAMES_WARNED + 1).alerts
    assert (found.name, found.subject, found.value) == (
        "TransactionNamesMany",
        "cluster",
        NAMES_WARNED + 1,
    )


def test_each_alert_has_a_row_in_the_page_for_operators() -> None:
    rules = (ROOT / "deploy/prometheus/tidelog.rules.yml").read_text(encoding="utf-8")
    text = (ROOT / "docs/operating.md").read_text(encoding="utf-8")

    names = {*re.findall(r"- alert: (\w+)", rules), *SEVERITIES}
    rows = re.findall(r"^\| \[(\w+)\]\(alerts\.md#(\w+)\) \|", text, re.MULTILINE)

    assert {(name, name.lower()) for name in names} == set(rows)
    assert len(rows) == len(names)


def test_alerts_name_counts_subjects_and_times() -> None:
    reason = "partition 3 waits for node 2"
    found = alerts_of(
        described(
            leaderless_count=2,
            leaderless=[LeaderlessPartitions("log_offline", 2, "orders", 3, reason)],
            nodes=[node(1), node(2, status="fenced")],
            events=[EVENT, replace(EVENT, at_ms=EVENT.at_ms - 5)],
        )
    )

    offline, lost, down = found.alerts
    assert (offline.subject, offline.value, offline.reason) == ("cluster", 2, reason)
    assert (lost.value, lost.since_ms) == (2, EVENT.at_ms - 5)
    assert down.subject == "node 2"
    assert found.severity is AlertSeverity.CRITICAL


def test_a_queue_fires_above_its_thresholds_only() -> None:
    limits = {"alert_age_ms": "5min", "alert_depth": "10", "alert_dead_letters": "2"}
    at_limits = counts(visible=10, dead=2, age_ms=5 * MINUTE_MS)
    above = counts(visible=11, dead=3, age_ms=7 * MINUTE_MS)

    assert alerts_of(None, queue(at_limits, **limits)).severity is None
    assert alerts_of(None, queue(above)).alerts == ()
    found = alerts_of(None, queue(above, owner="team", **limits))

    old, deep, dead = found.alerts
    assert [each.name for each in found.alerts] == [
        "QueueTooOld",
        "QueueTooDeep",
        "QueueDeadLetters",
    ]
    assert (old.value, old.threshold, old.unit) == (7 * MINUTE_MS, 5 * MINUTE_MS, "ms")
    assert old.since_ms == NOW_MS - 2 * MINUTE_MS
    assert (deep.value, deep.threshold, deep.since_ms) == (11, 10, None)
    assert (dead.value, dead.threshold) == (3, 2)
    assert {each.owner for each in found.alerts} == {"team"}
    assert {each.subject for each in found.alerts} == {"queue payments"}
    assert found.severity is AlertSeverity.WARNING


def test_dead_letters_are_also_the_messages_of_the_dead_letter_queue() -> None:
    settings = {"alert_dead_letters": "0", "dead_letter_queue": "dead"}
    source = queue(counts(), **settings)

    moved = counts(visible=1, in_flight=2, delayed=3)
    (alert,) = alerts_of(None, source, depths={"dead": moved}).alerts
    assert (alert.name, alert.value) == ("QueueDeadLetters", 6)
    assert alerts_of(None, source, depths={"dead": counts()}).severity is None
    assert alerts_of(None, source, depths={"dead": None}).unknown == ("queue payments",)


def test_a_queue_that_cannot_be_counted_is_unknown_and_no_silence() -> None:
    found = alerts_of(None, queue(None, alert_depth="1"), queue(None, name="without"))

    assert (found.alerts, found.unknown) == ((), ("queue payments",))
    assert found.severity is AlertSeverity.WARNING


def test_a_setting_of_a_newer_version_is_no_threshold() -> None:
    newer = queue(counts(visible=9))
    newer.config["alert_depth"] = "five"

    assert alerts_of(None, newer).severity is None
    assert alerts_of(None, group({"alert_colour": "red"})).severity is None


@pytest.mark.parametrize(
    ("overrides", "values"),
    [
        ({"owner": "team"}, []),
        ({"alert_lag_ms": "2min"}, []),
        ({"alert_lag_ms": "1min"}, [2 * MINUTE_MS]),
        ({"alert_lag_records": "12"}, []),
        ({"alert_lag_records": "11"}, [12]),
        ({"alert_lag_records": "0", "alert_lag_ms": "1s", "owner": "team"}, [2 * MINUTE_MS, 12]),
    ],
)
def test_a_group_fires_by_its_worst_partition_or_by_all_records(
    overrides: dict[str, str], values: list[int]
) -> None:
    parts = (
        progress(lag_records=5, lag_ms=MINUTE_MS),
        progress(lag_records=7, lag_ms=2 * MINUTE_MS),
    )

    found = alerts_of(None, group(overrides, *parts))

    assert [each.value for each in found.alerts] == values
    assert all(each.name == "GroupLag" for each in found.alerts)
    assert all(each.owner == overrides.get("owner") for each in found.alerts)
    if values and "alert_lag_ms" in overrides:
        alert = found.alerts[0]
        assert alert.threshold is not None
        assert alert.since_ms == NOW_MS - 2 * MINUTE_MS + alert.threshold


def test_a_lag_is_unknown_if_a_leader_does_not_answer_and_nothing_fires() -> None:
    limits = {"alert_lag_records": "5"}
    silent = progress(lag_records=None, lag_ms=None)

    assert alerts_of(None, group(limits, silent)).unknown == ("group billing",)
    fired = alerts_of(None, group(limits, silent, progress(lag_records=6, lag_ms=1)))
    assert (len(fired.alerts), fired.unknown) == (1, ())
    without_commit = replace(silent, offset=None)
    assert alerts_of(None, group(limits, without_commit)).severity is None


def alert(subject: str, name: str = "QueueTooDeep", value: int = 1) -> Alert:
    return Alert(name=name, subject=subject, reason="", value=value, unit="messages", next_step="x")


def test_changes_are_alerts_that_fired_and_cleared() -> None:
    first = AlertReport(1, (alert("queue a"), alert("queue b")))
    second = AlertReport(2, (alert("queue b", value=7), alert("queue c")))

    begun = changes(None, first)
    then = changes(begun.active, second)

    assert (begun.fired, begun.cleared) == (first.alerts, ())
    assert (then.fired, then.cleared) == ((alert("queue c"),), (alert("queue a"),))
    assert then.active == second


@pytest.mark.parametrize(
    ("subject", "unknown"),
    [
        ("queue a", "queue a"),
        ("queue a", "queues"),
        ("group a", "groups"),
        ("cluster", "cluster"),
        ("node 2", "cluster"),
    ],
)
def test_an_alert_whose_subject_is_unknown_stays(subject: str, unknown: str) -> None:
    first = AlertReport(1, (alert(subject),))

    blind = changes(first, AlertReport(2, (), (unknown,)))
    again = changes(blind.active, first)
    over = changes(blind.active, AlertReport(3, ()))

    assert (blind.fired, blind.cleared) == ((), ())
    assert (again.fired, again.cleared) == ((), ())
    assert over.cleared == first.alerts


def test_each_alert_has_its_heading_in_the_docs() -> None:
    text = (ROOT / "docs/alerts.md").read_text(encoding="utf-8")

    for name, severity in SEVERITIES.items():
        assert f"\n### {name}\n\n{severity.capitalize()}. " in text
        page, _, anchor = alert("cluster", name).docs.partition("#")
        assert page == "docs/alerts.md"
        assert anchor in anchors(text)
