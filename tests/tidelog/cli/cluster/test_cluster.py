"""`tidelog cluster`."""

import json
import sys

import click
import msgspec
import pytest

from tidelog.cli import main
from tidelog.client.admin.admin import Admin
from tidelog.wire.messages.cluster_admin import DescribeClusterReply

Printed = pytest.CaptureFixture[str]


@pytest.mark.usefixtures("at_broker")
def test_the_status_of_a_broker_that_is_alone(capsys: Printed) -> None:
    status = main.run(["cluster", "status", "--partitions"])

    printed = capsys.readouterr().out
    assert status == 0
    assert "controller  node 1 in term" in printed
    assert "voters      1, majority 1" in printed


@pytest.mark.usefixtures("at_broker")
def test_the_status_for_programs(capsys: Printed) -> None:
    assert main.run(["cluster", "status", "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert (found["controller_id"], found["nodes"][0]["status"]) == (1, "alive")


@pytest.mark.usefixtures("at_broker")
def test_a_check_is_one_line_and_exits_by_severity(capsys: Printed) -> None:
    assert main.run(["cluster", "status", "--check"]) == 0
    assert capsys.readouterr().out == "healthy; asked node 1\n"

    assert main.run(["cluster", "status", "--check", "--json"]) == 0
    health = json.loads(capsys.readouterr().out)["health"]
    assert (health["severity"], health["is_stale"], health["last_known"]) == (
        "healthy",
        False,
        None,
    )


@pytest.mark.usefixtures("at_broker")
def test_a_broker_that_is_alone_is_not_safe_to_stop(capsys: Printed) -> None:
    assert main.run(["cluster", "safe-to-stop", "1"]) == 3
    printed = capsys.readouterr().out
    assert printed.startswith(
        "node 1 must not stop:\n  no majority of voters: without the node, 0 of 1 are alive\n"
    )

    assert main.run(["cluster", "safe-to-stop", "1", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["is_safe"], found["voters"], found["remaining_voters"]) == (False, [1], [])


@pytest.mark.usefixtures("at_broker")
def test_an_unknown_node_cannot_be_checked(capsys: Printed) -> None:
    assert main.run(["cluster", "safe-to-stop", "9"]) == 1
    assert "there is no node 9; there are 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"under_replicated_count": 1}, 3),
        ({"leaderless_count": 1}, 4),
        ({"metadata_age_ms": 45_000}, 4),
    ],
)
@pytest.mark.usefixtures("at_broker")
def test_a_check_of_an_unhealthy_cluster_exits_with_3_or_4_and_a_status_with_0(
    changes: dict[str, int], expected: int, *, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    describe = Admin.describe_cluster

    async def changed(admin: Admin, **options: bool) -> DescribeClusterReply:
        return msgspec.structs.replace(await describe(admin, **options), **changes)

    monkeypatch.setattr(Admin, "describe_cluster", changed)

    assert main.run(["cluster", "status", "--check"]) == expected
    assert capsys.readouterr().out.count("\n") == 1
    assert main.run(["cluster", "status", "--check", "--json"]) == expected
    assert main.run(["cluster", "status"]) == 0


def test_a_check_without_a_broker_or_with_a_list_is_an_error(capsys: Printed) -> None:
    unused = "127.0.0.1:1"

    assert main.run(["cluster", "status", "--check", "--broker", unused]) == 1
    assert main.run(["cluster", "status", "--check", "--partitions"]) == 2
    assert "give either --check or --partitions" in capsys.readouterr().err


def test_leaders_of_one_topic_are_elected(topic: str, capsys: Printed) -> None:
    assert main.run(["cluster", "elect-leaders", "--topic", topic]) == 0
    assert "already the leader" in capsys.readouterr().out

    assert (
        main.run(["cluster", "elect-leaders", "--topic", topic, "--partition", "0", "--json"]) == 0
    )
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["topic"], found["leader_id"], found["error"]) == (topic, 1, None)


@pytest.mark.usefixtures("at_broker")
def test_an_election_without_partitions_is_reported(capsys: Printed) -> None:
    assert main.run(["cluster", "elect-leaders"]) == 0

    assert capsys.readouterr().out == "no partition needs an election\n"


def test_what_fails_is_in_the_table_and_in_one_line(topic: str, capsys: Printed) -> None:
    status = main.run(["cluster", "elect-leaders", "--topic", topic, "--partition", "7"])

    said = capsys.readouterr()
    assert status == 1
    assert said.out.count("\n") == 2
    assert said.err.startswith("error: leader election failed for 1 partition: there is no part")
    assert said.err.count("\n") == 1


@pytest.mark.usefixtures("at_broker")
def test_an_unknown_topic_is_an_error_of_one_line(capsys: Printed) -> None:
    assert main.run(["cluster", "elect-leaders", "--topic", "nope"]) == 1

    said = capsys.readouterr().err
    assert said.startswith("error: there is no topic 'nope'")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["elect-leaders", "--partition", "1"], "error: --partition needs a topic"),
        (
            ["elect-leaders", "--accept-data-loss"],
            "error: confirmation needed: standard input is not a terminal",
        ),
    ],
)
def test_what_is_not_clear_is_a_wrong_use(
    words: list[str], complaint: str, capsys: Printed
) -> None:
    assert main.run(["cluster", *words]) == 2

    assert complaint in capsys.readouterr().err


def test_an_unclean_election_needs_a_confirmation_or_yes(
    topic: str, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)

    def confirm(question: str, **_: object) -> None:
        asked.append(question)

    monkeypatch.setattr(click, "confirm", confirm)
    words = ["cluster", "elect-leaders", "--topic", topic, "--accept-data-loss"]

    assert main.run(words) == 0
    assert asked == [f"lose all records of topic {topic} that no live replica has, for good?"]
    assert main.run([*words, "--yes"]) == 0

    assert len(asked) == 1
    assert "already the leader" in capsys.readouterr().out


@pytest.mark.usefixtures("at_broker")
def test_settings_of_the_cluster_are_set_reset_and_shown(capsys: Printed) -> None:
    rate = ["--set", "reassignment_max_bytes_per_second=20MB"]

    assert main.run(["cluster", "alter", *rate, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["reassignment_max_bytes_per_second"] == "20MB"
    assert main.run(["cluster", "status", "--json"]) == 0
    assert (
        json.loads(capsys.readouterr().out)["config"]["reassignment_max_bytes_per_second"] == "20MB"
    )
    assert main.run(["cluster", "alter", "--reset", "reassignment_max_bytes_per_second"]) == 0
    assert main.run(["cluster", "alter"]) == 0
    assert "reassignment_max_bytes_per_second  unlimited\n" in capsys.readouterr().out


@pytest.mark.usefixtures("at_broker")
@pytest.mark.parametrize("setting", ["colour=red", "reassignment_max_bytes_per_second=1"])
def test_an_invalid_setting_is_rejected_in_one_line(setting: str, capsys: Printed) -> None:
    assert main.run(["cluster", "alter", "--set", setting]) == 1

    said = capsys.readouterr().err
    assert setting.partition("=")[0] in said
    assert said.count("\n") == 1


@pytest.mark.usefixtures("at_broker")
def test_settings_of_a_broker_are_listed_with_their_sources(capsys: Printed) -> None:
    changes = [
        "--set",
        "scrub_max_bytes_per_second=8MiB",
        "--set",
        "scrub_max_bytes_per_second@1=1MiB",
    ]
    assert main.run(["cluster", "alter", *changes, "--set", "log_flush_interval_ms=2s"]) == 0
    assert "scrub_max_bytes_per_second@1" in capsys.readouterr().out

    assert main.run(["broker", "config", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["node_id"] == 1
    settings = found["settings"]
    assert settings["scrub_max_bytes_per_second"] == {
        "value": "1048576",
        "source": "broker",
        "is_dynamic": True,
    }
    assert (
        settings["log_flush_interval_ms"]["value"],
        settings["log_flush_interval_ms"]["source"],
    ) == (
        "2000",
        "cluster",
    )
    assert settings["max_connections"]["source"] == "default"
    assert settings["data_dir"]["source"] != "default"

    resets = ["--reset", "scrub_max_bytes_per_second@1", "--reset", "scrub_max_bytes_per_second"]
    assert main.run(["cluster", "alter", *resets, "--reset", "log_flush_interval_ms"]) == 0
    capsys.readouterr()
    assert main.run(["broker", "config"]) == 0
    (line,) = (
        each
        for each in capsys.readouterr().out.splitlines()
        if each.startswith("scrub_max_bytes_per_second")
    )
    assert line.split()[-2:] == ["default", "yes"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("scrub_max_bytes_per_second@7=1MiB", "there is no broker 7; there are 1"),
        (
            "scrub_max_bytes_per_second@one=1MiB",
            "'one' is no node id; say scrub_max_bytes_per_second@1 for node 1",
        ),
        (
            "default_replication_factor@1=2",
            "default_replication_factor cannot be set for one broker; those are log_flush_",
        ),
        ("colour@1=red", "there is no cluster setting 'colour'"),
        ("max_connections@1=5", "max_connections can only be changed by a restart of the broker"),
        ("scrub_max_bytes_per_second@1=5", "scrub_max_bytes_per_second@1"),
    ],
)
@pytest.mark.usefixtures("at_broker")
def test_a_setting_that_one_broker_cannot_have_is_an_error_of_one_line(
    change: str, reason: str, capsys: Printed
) -> None:
    assert main.run(["cluster", "alter", "--set", change]) == 1

    said = capsys.readouterr().err
    assert reason in said
    assert said.count("\n") == 1


@pytest.mark.usefixtures("at_broker")
def test_a_broker_that_is_not_there_has_no_settings(capsys: Printed) -> None:
    assert main.run(["broker", "config", "9"]) == 1

    assert capsys.readouterr().err == "error: there is no node 9; there are 1\n"
