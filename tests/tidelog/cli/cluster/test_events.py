"""`tidelog cluster events`, and the events in other output, after a loss of data."""

import json
import shutil
import sys
from pathlib import Path

import click
import pytest

from tests.tidelog.cli.conftest import BrokerThread
from tidelog.cli import main

Printed = pytest.CaptureFixture[str]


def run(capsys: Printed, *words: str) -> str:
    """Return the output of a command that succeeds."""
    assert main.run(list(words)) == 0
    return capsys.readouterr().out


def lose_files(data_dir: Path) -> None:
    """Remove all files of the topics."""
    for directory in (data_dir / "topics").iterdir():
        shutil.rmtree(directory)


def test_a_loss_is_shown_until_it_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    with BrokerThread(tmp_path) as address:
        monkeypatch.setenv("TIDELOG_BROKER", address)
        run(capsys, "topic", "create", "orders")
    lose_files(tmp_path)
    with BrokerThread(tmp_path) as address:
        monkeypatch.setenv("TIDELOG_BROKER", address)
        accept = "tidelog cluster elect-leaders --topic orders --partition 0 --accept-data-loss"
        reason = "all replicas have lost files (broker 1): stop this broker, bring the files back"
        reason += f" and start this broker; then, or without the files, accept the loss: {accept}"
        for words in (["topic", "describe", "orders"], ["cluster", "status", "--partitions"]):
            assert f"  orders/0: {reason}\n" in run(capsys, *words)
        assert f"  1 partition, first orders/0: {reason}\n" in run(capsys, "cluster", "status")

        run(capsys, *accept.split()[1:], "--yes")

        for command in ("topic describe orders", "cluster status", "cluster events"):
            printed = run(capsys, *command.split())
            assert "data_loss_accepted" in printed
            assert "why partitions" not in printed
        (event,) = json.loads(run(capsys, "cluster", "events", "--json"))
        assert (event["event_id"], event["topic"], event["partition"]) == (1, "orders", 0)
        assert json.loads(run(capsys, "topic", "describe", "orders", "--json"))["events"] == [event]

        printed = run(capsys, "cluster", "events", "--acknowledge", "1")

        assert printed == "there are no events that are not acknowledged\n"
        assert json.loads(run(capsys, "cluster", "events", "--acknowledge", "1", "--json")) == []
        assert "data_loss_accepted" not in run(capsys, "topic", "describe", "orders")
        assert "0 not acknowledged, 1 in all" in run(capsys, "cluster", "status")


def test_all_events_are_acknowledged_after_a_confirmation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    asked: list[str] = []

    def confirm(question: str, **_: object) -> None:
        asked.append(question)

    monkeypatch.setattr(click, "confirm", confirm)
    with BrokerThread(tmp_path) as address:
        monkeypatch.setenv("TIDELOG_BROKER", address)
        run(capsys, "topic", "create", "orders", "--partitions", "2")
    lose_files(tmp_path)
    with BrokerThread(tmp_path) as address:
        monkeypatch.setenv("TIDELOG_BROKER", address)
        run(capsys, "cluster", "elect-leaders", "--accept-data-loss", "--yes")
        assert len(json.loads(run(capsys, "cluster", "events", "--json"))) == 2

        assert main.run(["cluster", "events", "--acknowledge-all"]) == 2
        assert "confirmation needed" in capsys.readouterr().err
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
        printed = run(capsys, "cluster", "events", "--acknowledge-all")

    assert asked == ["acknowledge 2 events, for good?"]
    assert printed == "there are no events that are not acknowledged\n"


@pytest.mark.usefixtures("at_broker")
def test_wrong_uses_of_events_are_one_line(capsys: Printed) -> None:
    assert main.run(["cluster", "events", "--acknowledge", "7"]) == 1
    assert capsys.readouterr().err.startswith("error: there is no event 7: the cluster has no")
    assert main.run(["cluster", "events", "--acknowledge", "7", "--acknowledge-all"]) == 2
    assert "not both" in capsys.readouterr().err
    assert run(capsys, "cluster", "events", "--acknowledge-all") == (
        "there are no events that are not acknowledged\n"
    )
