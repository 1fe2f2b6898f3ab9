"""The command `tidelog alerts`, against a real broker."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tidelog.cli import main
from tidelog.cli.alerts import amount_text, check_line, print_report, report_as_json
from tidelog.client.admin.alerts import Alert, AlertReport

Printed = pytest.CaptureFixture[str]

OWNER = "support@example.org"
LAG = Alert(
    name="GroupLag",
    subject="group billing",
    reason="lag in time of the worst partition",
    value=125_000,
    threshold=60_000,
    unit="ms",
    since_ms=1_700_000_000_000,
    next_step="check the members",
)
OFFLINE = Alert(
    name="OfflinePartition", subject="cluster", reason="why", value=1_200, unit="partitions",
    threshold=0, next_step="see",
)  # fmt: skip
REPORT = AlertReport(
    1_700_000_065_000, (OFFLINE, LAG), tuple(f"queue {name}" for name in "abcdefg")
)


@pytest.fixture
def deep_queue(at_broker: None, capsys: Printed) -> Iterator[str]:
    """Return a queue with two messages and a threshold of one."""
    del at_broker
    settings = ("--config", "alert_depth=1", "--config", f"owner={OWNER}")
    assert main.run(["queue", "create", "tickets", *settings]) == 0
    assert main.run(["queue", "send", "tickets", "one", "two"]) == 0
    capsys.readouterr()
    yield "tickets"
    assert main.run(["queue", "delete", "tickets", "--yes", "--with-topic"]) == 0


def test_sizes_are_shown_with_their_unit() -> None:
    assert amount_text(5 * 2**30, "bytes") == "5.0 GiB"


def test_a_report_is_a_table_with_next_steps(capsys: Printed) -> None:
    print_report(REPORT)

    said = capsys.readouterr()
    assert said.out == (
        "SEVERITY  ALERT             SUBJECT        OWNER      VALUE  THRESHOLD  SINCE\n"
        "critical  OfflinePartition  cluster        -          1,200          0  -\n"
        "warning   GroupLag          group billing  -      2 min 5 s      1 min"
        "  2023-11-14 22:13:20 UTC\n"
        "\n"
        "cluster: why; see (docs/alerts.md#offlinepartition)\n"
        "group billing: lag in time of the worst partition; check the members"
        " (docs/alerts.md#grouplag)\n"
    )
    unknown = "state unknown: queue a, queue b, queue c, queue d, queue e and 2 more"
    assert said.err == f"{unknown}\n"
    assert check_line(REPORT) == f"2 alerts: OfflinePartition, GroupLag; {unknown}"


def test_json_has_every_field() -> None:
    found = json.loads(json.dumps(report_as_json(REPORT)))

    assert found["severity"] == "critical"
    assert len(found["unknown"]) == 7
    assert set(found["alerts"][0]) == {*Alert.__dataclass_fields__, "severity", "docs"}


def test_alerts_are_shown_and_their_severity_is_the_exit_status(
    deep_queue: str, capsys: Printed
) -> None:
    assert main.run(["alerts"]) == 0
    assert f"warning   QueueTooDeep  queue {deep_queue}" in capsys.readouterr().out
    assert main.run(["alerts", "--check"]) == 3
    assert capsys.readouterr().out == "1 alert: QueueTooDeep\n"
    assert main.run(["alerts", "--check", "--json"]) == 3
    (alert,) = json.loads(capsys.readouterr().out)["alerts"]
    assert (alert["owner"], alert["value"], alert["threshold"]) == (OWNER, 2, 1)
    assert main.run(["alerts", "--owner", "another", "--check"]) == 0
    assert main.run(["queue", "purge", deep_queue, "--yes"]) == 0
    capsys.readouterr()
    assert main.run(["alerts"]) == 0
    assert capsys.readouterr().out == "no alerts\n"


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_watch_prints_what_fires_and_clears_until_ctrl_c(
    words: tuple[str, ...], deep_queue: str, broker_address: str
) -> None:
    command = ("alerts", "--watch", "--interval", "1s", "--broker", broker_address, *words)
    with subprocess.Popen(
        [sys.executable, "-m", "tidelog", *command], stdout=subprocess.PIPE, text=True
    ) as watch:
        assert watch.stdout is not None
        if not words:
            assert watch.stdout.readline().endswith("1 alert: QueueTooDeep\n")
        fired = watch.stdout.readline()
        assert main.run(["queue", "purge", deep_queue, "--yes"]) == 0
        cleared = watch.stdout.readline()
        watch.send_signal(signal.SIGINT)
        assert watch.wait(10) == 128 + signal.SIGINT

    if words:
        assert [json.loads(each)["event"] for each in (fired, cleared)] == ["fired", "cleared"]
    else:
        subject = f"warning   QueueTooDeep  queue {deep_queue} of {OWNER}: 2\n"
        assert fired.endswith(f"  fired    {subject}")
        assert cleared.endswith(f"  cleared  {subject}")


def test_check_and_watch_exclude_each_other(capsys: Printed) -> None:
    assert main.run(["alerts", "--check", "--watch"]) == 2
    assert "give either --watch or --check" in capsys.readouterr().err
