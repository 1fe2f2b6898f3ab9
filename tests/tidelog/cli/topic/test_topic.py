"""`tidelog topic`."""

import json

import pytest

from tidelog.cli import main

Printed = pytest.CaptureFixture[str]


def test_creating_with_json_says_everything(at_broker: None, capsys: Printed) -> None:
    del at_broker

    status = main.run(
        ["topic", "create", "created", "--partitions", "2", "--config", "retention_ms=1d", "--json"]
    )

    found = json.loads(capsys.readouterr().out)
    assert status == 0
    assert found["name"] == "created"
    assert len(found["partitions"]) == 2
    assert found["config"]["retention_ms"] == "1d"
    assert found["config_overrides"] == ["retention_ms"]


@pytest.mark.usefixtures("at_broker")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["describe", "nope"], "there is no topic 'nope'"),
        (["delete", "nope", "--yes"], "there is no topic 'nope'"),
        (["alter", "nope", "--reset", "retention_ms"], "there is no topic 'nope'"),
        (["create", "a/b"], "'a/b' cannot be the name of a topic"),
        (["create", "a", "--partitions", "0"], "0 partitions are not possible"),
        (["create", "a", "--config", "x=1"], "there is no topic setting 'x'"),
        (
            ["create", "a", "--config", "min_insync_replicas=2"],
            "min_insync_replicas is 2, it must be at most 1, the number of replicas",
        ),
        (["create", "a", "--replication-factor", "2"], "2 replicas are not possible"),
        (
            ["delete-records", "nope", "--partition", "0", "--before", "end"],
            "there is no topic 'nope'",
        ),
        (["add-partitions", "nope", "--to", "2", "--yes"], "there is no topic 'nope'"),
        (["usage", "nope"], "there is no topic 'nope'"),
        (["alter", "nope", "--replication-factor", "1"], "there is no topic 'nope'"),
        (["alter", "--all", "--replication-factor", "16"], "16 replicas are not possible"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    words: list[str], complaint: str, capsys: Printed
) -> None:
    status = main.run(["topic", *words])

    said = capsys.readouterr()
    assert (status, said.out) == (1, "")
    assert said.err.startswith(f"error: {complaint}")
    assert said.err.count("\n") == 1


def test_more_replicas_in_sync_than_there_are_cannot_be_asked_for(
    topic: str, capsys: Printed
) -> None:
    status = main.run(["topic", "alter", topic, "--set", "min_insync_replicas=2"])

    said = capsys.readouterr()
    assert (status, said.out) == (1, "")
    complaint = "error: min_insync_replicas is 2, it must be at most 1, the number of replicas"
    assert said.err.startswith(complaint)
    assert said.err.count("\n") == 1


def test_a_topic_is_created_once(topic: str, capsys: Printed) -> None:
    status = main.run(["topic", "create", topic])

    assert status == 1
    assert capsys.readouterr().err == (
        f"error: there is a topic '{topic}' already; `tidelog topic describe {topic}` shows it\n"
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["alter", "orders"], "no change is given: add --set NAME=VALUE, --reset NAME,"),
        (["alter", "--set", "retention_ms=1d"], "Missing argument 'NAME'."),
        (["alter", "orders", "--wait"], "--all, --dry-run and --wait are for replicas: add"),
        (["alter", "--all"], "--all, --dry-run and --wait are for replicas: add"),
        (
            ["alter", "orders", "--all", "--replication-factor", "3"],
            "no single choice of topics is given: add either NAME or --all",
        ),
        (
            ["alter", "--replication-factor", "3"],
            "no single choice of topics is given: add either NAME or --all",
        ),
        (
            ["alter", "orders", "--replication-factor", "3", "--set", "retention_ms=1d"],
            "--replication-factor moves replicas: give other changes in a command of their own",
        ),
        (["delete", "orders"], "confirmation needed: standard input is not a terminal; add --yes"),
        (["delete-records", "orders", "--partition", "0"], "Missing option '--before'"),
        (
            ["delete-records", "orders", "--partition", "0", "--before-offset", "1"],
            "--before-offset is now --before",
        ),
        (["create", "orders", "--config", "retention_ms"], "Invalid value for '--config'"),
        (["create"], "Missing argument 'NAME'."),
    ],
)
def test_wrong_use_is_explained_before_a_broker_is_asked(
    words: list[str], complaint: str, capsys: Printed
) -> None:
    status = main.run(["topic", *words])

    said = capsys.readouterr().err
    assert status == 2
    assert said.startswith(f"Usage: tidelog topic {words[0]} ")
    assert f"\nerror: {complaint}" in said


def test_settings_are_altered_and_put_back(topic: str, capsys: Printed) -> None:
    main.run(["topic", "alter", topic, "--set", "retention_ms=2d", "--set", "segment_bytes=1MiB"])
    main.run(["topic", "alter", topic, "--reset", "segment_bytes"])

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines.count(["retention_ms", "2d", "topic"]) == 2
    assert lines.count(["segment_bytes", "1MiB", "topic"]) == 1
    assert lines.count(["segment_bytes", "256MiB", "default"]) == 1


def test_a_list_has_a_line_for_each_topic(topic: str, capsys: Printed) -> None:
    main.run(["topic", "list"])

    titles, *lines = capsys.readouterr().out.splitlines()
    assert titles.split() == ["TOPIC", "PARTITIONS", "REPLICAS", "RECORDS", "SIZE", "STATUS"]
    assert [topic, "1", "1", "0", "64", "B", "online"] in [line.split() for line in lines]


def test_a_list_has_the_topics_with_a_prefix(topic: str, capsys: Printed) -> None:
    main.run(["topic", "list", "--names", "--prefix", topic[:-1]])
    assert topic in capsys.readouterr().out.splitlines()
    main.run(["topic", "list", "--prefix", topic])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["TOPIC", topic]
    main.run(["topic", "list", "--prefix", "z-"])
    assert capsys.readouterr().err == "there are no topics whose names begin with 'z-'\n"


def test_labels_are_changed_and_shown(topic: str, capsys: Printed) -> None:
    assert main.run(["topic", "alter", topic, "--label", "team=billing", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == {"team": "billing"}
    main.run(["topic", "describe", topic])
    assert ["team", "billing"] in [line.split() for line in capsys.readouterr().out.splitlines()]
    assert main.run(["topic", "alter", topic, "--remove-label", "team"]) == 0
    assert "team" not in capsys.readouterr().out


def test_a_deleted_topic_is_gone(topic: str, capsys: Printed) -> None:
    main.run(["topic", "delete", topic, "--yes"])
    main.run(["topic", "delete", topic, "--yes"])

    said = capsys.readouterr()
    assert said.out == f"deleted topic {topic}\n"
    assert said.err.startswith(f"error: there is no topic '{topic}'")


def test_the_consequences_of_more_partitions_are_printed_before_the_change(
    topic: str, capsys: Printed
) -> None:
    main.run(["queue", "create", "billing", "--topic", topic])
    capsys.readouterr()

    refused = main.run(["topic", "add-partitions", topic, "--to", "9"])
    said = capsys.readouterr()
    main.run(["topic", "describe", topic, "--json"])
    before = json.loads(capsys.readouterr().out)
    added = main.run(["topic", "add-partitions", topic, "--to", "9", "--yes", "--json"])
    grown = json.loads(capsys.readouterr().out)
    again = main.run(["topic", "add-partitions", topic, "--to", "9"])
    main.run(["queue", "delete", "billing", "--yes"])

    assert (refused, added, again) == (2, 0, 0)
    assert "9 in all; the number never falls again" in said.err
    assert "queues deliver messages of the new partitions as well: billing" in said.err
    assert "confirmation needed: standard input is not a terminal; add --yes" in said.err
    assert len(before["partitions"]) < 9
    assert grown == {"topic": topic, "partitions": 9, "added": 9 - len(before["partitions"])}


def test_usage_is_printed_for_one_topic_and_for_all(topic: str, capsys: Printed) -> None:
    assert main.run(["topic", "usage", topic]) == 0
    assert capsys.readouterr().out.startswith(f"topic     {topic}")
    assert main.run(["topic", "usage"]) == 0
    assert topic in capsys.readouterr().out
    assert main.run(["topic", "usage", topic, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == topic


@pytest.mark.usefixtures("at_broker")
def test_a_topic_is_described_with_the_source_of_each_setting(capsys: Printed) -> None:
    assert main.run(["topic", "create", "given", "--config", "retention_ms=1d"]) == 0
    assert main.run(["cluster", "alter", "--set", "min_insync_replicas=1"]) == 0
    capsys.readouterr()

    assert main.run(["topic", "describe", "given"]) == 0

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    sources = {line[0]: line[-1] for line in lines if len(line) == 3}
    assert sources["retention_ms"] == "topic"
    assert sources["min_insync_replicas"] == "cluster"
    assert sources["segment_ms"] == "default"
    assert main.run(["cluster", "alter", "--reset", "min_insync_replicas"]) == 0


def test_a_topic_with_as_many_replicas_needs_no_more(topic: str, capsys: Printed) -> None:
    for which in ([topic], ["--all"]):
        assert main.run(["topic", "alter", *which, "--replication-factor", "1", "--wait"]) == 0
        assert capsys.readouterr().out == "no replica needs to move\n"


def test_more_replicas_than_brokers_are_an_error_with_both_numbers(
    topic: str, capsys: Printed
) -> None:
    assert main.run(["topic", "alter", topic, "--replication-factor", "3", "--dry-run"]) == 1

    said = capsys.readouterr().err
    assert said.startswith(f"error: topic '{topic}' cannot have 3 replicas: the number of brokers")
    assert " is 1; start more brokers" in said
    assert said.count("\n") == 1
