"""`tidelog queue`: looking at messages, purging, going back."""

import itertools
import json

import pytest

from tidelog.cli import main

Printed = pytest.CaptureFixture[str]

_numbers = itertools.count()


@pytest.fixture
def queue(at_broker: None, capsys: Printed) -> str:
    """Create a queue with two messages that no other test has."""
    del at_broker
    name = f"cared-for-{next(_numbers)}"
    assert main.run(["queue", "create", name]) == 0
    assert main.run(["queue", "send", name, "one", "two"]) == 0
    capsys.readouterr()
    return name


def run(capsys: Printed, *words: str) -> str:
    """Return what a command prints that goes well."""
    assert main.run(["queue", *words]) == 0
    return capsys.readouterr().out


def test_looking_takes_nothing(queue: str, capsys: Printed) -> None:
    for _ in range(2):
        _, first, second = run(capsys, "peek", queue).splitlines()
        assert first.split() == ["0-0", "visible", "0", "-", "-", "-", "one"]
        assert second.split()[-1] == "two"
    assert len(run(capsys, "peek", queue, "--max", "1").splitlines()) == 2


def test_a_queue_goes_back_and_hands_out_everything_again(queue: str, capsys: Printed) -> None:
    run(capsys, "receive", queue, "--wait", "5", "--delete")
    assert run(capsys, "seek", queue, "--to", "1h", "--yes") == f"{queue} has 2 messages now\n"
    assert len(json.loads(run(capsys, "receive", queue, "--wait", "5", "--json"))) == 2
    found = json.loads(run(capsys, "seek", queue, "--to", "latest", "--yes", "--json"))
    assert found == {"messages": 0}


def test_a_purge_says_how_many_messages_it_did_away_with(queue: str, capsys: Printed) -> None:
    assert json.loads(run(capsys, "purge", queue, "--yes", "--json")) == {"purged": 2}
    assert json.loads(run(capsys, "peek", queue, "--json")) == []


def test_what_nobody_gave_up_is_no_dead_letter(queue: str, capsys: Printed) -> None:
    assert main.run(["queue", "dead-letters", queue]) == 0
    assert capsys.readouterr().err == "there are no such messages\n"
