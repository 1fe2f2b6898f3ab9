"""`tidelog queue`."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.cli import main

Printed = pytest.CaptureFixture[str]

_numbers = itertools.count()


@pytest.fixture
def queue(at_broker: None, capsys: Printed) -> Iterator[str]:
    """Create a queue that no other test has, and delete it if it is still there."""
    del at_broker
    name = f"queue-{next(_numbers)}"
    assert main.run(["queue", "create", name]) == 0
    capsys.readouterr()
    yield name
    main.run(["queue", "delete", name, "--yes", "--with-topic", "--detach-sources"])


def test_a_queue_is_created_described_altered_and_deleted(at_broker: None, capsys: Printed) -> None:
    del at_broker
    assert main.run(["queue", "create", "dead"]) == 0
    created = main.run(
        [
            *("queue", "create", "payments", "--partitions", "2", "--from", "end"),
            *("--config", "visibility_timeout_ms=1min", "--config", "dead_letter_queue=dead"),
            *("--topic-config", "retention_ms=14d", "--json"),
        ]
    )
    said = capsys.readouterr().out
    first, _, rest = said.partition("\n")
    found = json.loads(rest)

    assert created == 0
    assert first == "created queue dead on topic dead with 1 partition"
    assert (found["name"], found["topic"], found["is_fifo"]) == ("payments", "payments", False)
    assert found["config_overrides"] == ["dead_letter_queue", "visibility_timeout_ms"]
    assert [each["start_offset"] for each in found["partitions"]] == [0, 0]
    assert main.run(["topic", "describe", "payments", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["config"]["retention_ms"] == "14d"
    main.run(["queue", "describe", "dead"])
    assert ["dead", "letters", "of", "payments"] in _words(capsys)
    main.run(
        [
            "queue",
            "alter",
            "payments",
            "--set",
            "priority_weights=8,1",
            "--reset",
            "dead_letter_queue",
        ]
    )
    lines = _words(capsys)
    assert ["priority_weights", "8,1", "queue"] in lines
    assert ["dead_letter_queue", "none", "default"] in lines
    for name in ("payments", "dead"):
        assert main.run(["queue", "delete", name, "--yes", "--with-topic"]) == 0
    assert capsys.readouterr().out == "deleted queue payments\ndeleted queue dead\n"


def test_queues_are_created_from_a_file_with_an_error_for_each_bad_line(
    at_broker: None, capsys: Printed, tmp_path: Path
) -> None:
    del at_broker
    file = tmp_path / "queues"
    file.write_text(
        "alpha\n\n"
        '{"name": "beta", "partitions": 2, "config": {"visibility_timeout": 60}}\n'
        "not legal\n"
        '{"nme": "gamma"}\n'
        '{"name": "alpha", "fifo": true}\n',
        encoding="utf-8",
    )
    create = ["queue", "create", "--from-file", str(file), "--config", "max_receive_count=7"]

    assert main.run(create) == 1
    said = capsys.readouterr()

    assert said.out == "created 2 queues\n"
    *lines, last = said.err.splitlines()
    assert [line.split(": ")[0] for line in lines] == ["line 4", "line 5", "line 6"]
    assert "'not legal'" in lines[0]
    assert "nme" in lines[1]
    assert "there is a queue 'alpha' already, and it is not FIFO" in lines[2]
    assert "3 lines of 5 failed" in last
    assert main.run([*create, "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert [(each["line"], each["error"] is None) for each in printed] == [
        *((1, True), (3, True), (4, False), (5, False), (6, False))
    ]
    assert main.run(["queue", "describe", "beta", "--json"]) == 0
    beta = json.loads(capsys.readouterr().out)
    assert len(beta["partitions"]) == 2
    assert beta["config"]["visibility_timeout_ms"] == "60000ms"
    assert beta["config"]["max_receive_count"] == "7"
    for name in ("alpha", "beta"):
        main.run(["queue", "delete", name, "--yes", "--with-topic"])


def test_a_name_and_a_file_exclude_each_other(at_broker: None, capsys: Printed) -> None:
    del at_broker
    assert main.run(["queue", "create", "one", "--from-file", "-"]) == 2
    assert "give a name or --from-file, and not both" in capsys.readouterr().err


def _words(capsys: Printed) -> list[list[str]]:
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_a_list_has_a_line_for_each_queue(queue: str, capsys: Printed) -> None:
    for words, counts in (([], ["0", "0", "0", "0", "-"]), (["--no-counts"], [])):
        main.run(["queue", "list", *words])

        titles, *lines = capsys.readouterr().out.splitlines()
        assert titles.split()[:3] == ["QUEUE", "TOPIC", "KIND"]
        assert [queue, queue, "standard", "1", *counts, "none"] in [line.split() for line in lines]


def test_labels_are_set_changed_and_shown(queue: str, capsys: Printed) -> None:
    name = f"labelled-{queue}"
    labels = ("--label", "team=billing", "--label", "policy= a=b ")
    assert main.run(["queue", "create", name, "--topic", queue, *labels, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == {"team": "billing", "policy": " a=b "}
    changes = ("--label", "team=sales", "--remove-label", "policy")
    assert main.run(["queue", "alter", name, *changes]) == 0
    assert _words(capsys)[-2:] == [["LABEL", "VALUE"], ["team", "sales"]]
    main.run(["queue", "describe", name])
    assert ["team", "sales"] in _words(capsys)
    main.run(["queue", "list", "--prefix", name, "--json"])
    assert [each["labels"] for each in json.loads(capsys.readouterr().out)] == [{"team": "sales"}]
    assert main.run(["queue", "alter", name]) == 2
    assert "or --remove-label NAME" in capsys.readouterr().err
    main.run(["queue", "delete", name, "--yes"])


def test_a_list_of_names_has_nothing_else(queue: str, capsys: Printed) -> None:
    main.run(["queue", "create", f"x-{queue}", "--topic", queue])
    main.run(["queue", "create", f"y-{queue}", "--topic", queue])
    capsys.readouterr()

    main.run(["queue", "list", "--names"])
    assert {f"x-{queue}", f"y-{queue}", queue} <= set(capsys.readouterr().out.splitlines())
    main.run(["queue", "list", "--names", "--prefix", "x-"])
    assert capsys.readouterr().out == f"x-{queue}\n"
    main.run(["queue", "list", "--names", "--prefix", "y-", "--json"])
    assert json.loads(capsys.readouterr().out) == [f"y-{queue}"]
    main.run(["queue", "list", "--prefix", "x-", "--json"])
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == [f"x-{queue}"]
    main.run(["queue", "list", "--prefix", "z-"])
    assert capsys.readouterr().err == "there are no queues whose names begin with 'z-'\n"
    for name in ("x", "y"):
        main.run(["queue", "delete", f"{name}-{queue}", "--yes"])


def test_an_empty_list_says_how_to_begin(at_broker: None, capsys: Printed) -> None:
    del at_broker

    assert main.run(["queue", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert main.run(["queue", "list"]) == 0
    assert capsys.readouterr().err.startswith("there are no queues yet; `tidelog queue create")


def test_creation_of_a_queue_is_idempotent(queue: str, capsys: Printed) -> None:
    assert main.run(["queue", "create", queue]) == 0
    assert main.run(["queue", "create", queue, "--fifo"]) == 1

    said = capsys.readouterr().err
    assert said.startswith(f"error: there is a queue '{queue}' already, and it is not FIFO; ")


def test_a_topic_with_a_queue_is_not_deleted(queue: str, capsys: Printed) -> None:
    assert main.run(["topic", "delete", queue, "--yes"]) == 1

    said = capsys.readouterr().err
    assert said.startswith(f"error: topic '{queue}' has queues: {queue}; delete them first")


@pytest.mark.usefixtures("at_broker")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["describe", "nope"], "there is no queue 'nope'"),
        (["delete", "nope", "--yes"], "there is no queue 'nope'"),
        (["alter", "nope", "--reset", "priority_weights"], "there is no queue 'nope'"),
        (["create", "a/b"], "'a/b' cannot be the name of a queue"),
        (["create", "a", "--partitions", "0"], "0 partitions are not possible"),
        (["create", "a", "--topic", "nope"], "there is no topic 'nope'; create it first"),
        (["create", "a", "--config", "x=1"], "there is no queue setting 'x'"),
        (["create", "a", "--config", "retention_ms=1s"], "retention_ms is '1s', it must be at"),
        (
            ["create", "a", "--config", "dead_letter_queue=nope"],
            "there is no dead-letter queue 'nope'",
        ),
        (["create", "a", "--config", "dead_letter_queue=a"], "there is no dead-letter queue 'a'"),
        (
            ["create", "a", "--fifo", "--partitions", "2", "--config", "deduplication_scope=queue"],
            "deduplication_scope is queue, it must be group",
        ),
        (["create", "a", "--topic-config", "x=1"], "there is no topic setting 'x'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    words: list[str], complaint: str, capsys: Printed
) -> None:
    status = main.run(["queue", *words])

    said = capsys.readouterr()
    assert (status, said.out) == (1, "")
    assert said.err.startswith(f"error: {complaint}")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["create"], "Missing argument 'NAME'."),
        (
            ["create", "a", "--from", "soon"],
            "Invalid value for '--from': 'soon' is no place",
        ),
        (["create", "a", "--from", "-5"], "a new queue starts at beginning, end or a time"),
        (["create", "a", "--config", "priority_weights"], "Invalid value for '--config'"),
        (
            ["create", "a", "--config", "fifo=on"],
            "fifo is not a setting of a queue: use the option",
        ),
        (["create", "a", "--config", "topic=b"], "topic is not a setting of a queue"),
        (["alter", "a"], "no change is given: add --set NAME=VALUE, --reset NAME,"),
        (["delete", "a"], "confirmation needed: standard input is not a terminal; add --yes"),
    ],
)
def test_wrong_use_is_explained_before_a_broker_is_asked(
    words: list[str], complaint: str, capsys: Printed
) -> None:
    status = main.run(["queue", *words])

    said = capsys.readouterr().err
    assert status == 2
    assert said.startswith(f"Usage: tidelog queue {words[0]} ")
    assert f"\nerror: {complaint}" in said
