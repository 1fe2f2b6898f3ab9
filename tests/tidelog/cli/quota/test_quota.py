"""`tidelog quota`."""

import json

import pytest

from tidelog.cli import main

Printed = pytest.CaptureFixture[str]


@pytest.mark.usefixtures("at_broker")
def test_quotas_are_set_listed_and_removed(capsys: Printed) -> None:
    assert main.run(["quota", "set", "user:cli", "produce_bytes_per_s=10MiB", "queues_max=3"]) == 0
    printed = capsys.readouterr().out
    assert "produce_bytes_per_s  10.0 MiB/s" in printed
    assert "queues_max" in printed

    assert main.run(["quota", "list", "user:cli"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["PRINCIPAL", "QUOTA", "LIMIT", "USED", "THROTTLED"]
    assert lines[1].split() == ["user:cli", "produce_bytes_per_s", "10.0", "MiB/s", "0", "B/s"]

    assert main.run(["quota", "remove", "user:cli", "queues_max", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"principal": "user:cli", "values": {"produce_bytes_per_s": 10 << 20}}

    assert main.run(["quota", "remove", "user:cli", "--all"]) == 0
    assert capsys.readouterr().out == "user:cli has no quotas of its own.\n"


@pytest.mark.usefixtures("at_broker")
def test_a_principal_without_quotas_of_its_own_has_those_of_default(capsys: Printed) -> None:
    assert main.run(["quota", "set", "default", "connections_max=1000", "over_quota=error"]) == 0
    capsys.readouterr()
    try:
        assert main.run(["quota", "list", "anonymous", "--json"]) == 0
        (found,) = json.loads(capsys.readouterr().out)

        assert found["principal"] == "anonymous"
        assert found["values"] == {"connections_max": 1000, "over_quota": 1}
        assert not found["is_own"]
    finally:
        assert main.run(["quota", "remove", "default", "--all"]) == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["set", "user:cli", "produce_rate=1"], "there is no quota 'produce_rate'"),
        (["set", "user:cli", "busy_ms_per_s=2000"], "it must be 1 to 1000"),
        (["set", "user:cli", "over_quota=wait"], "it must be throttle or error"),
        (["remove", "user:cli"], "give names of quotas, or --all"),
    ],
)
def test_a_wrong_line_is_refused_with_the_right_values(
    line: list[str], message: str, capsys: Printed
) -> None:
    assert main.run(["quota", *line]) == 2

    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.usefixtures("at_broker")
def test_a_text_that_is_no_principal_is_refused(capsys: Printed) -> None:
    assert main.run(["quota", "set", "alice", "queues_max=1"]) == 1

    assert "write user:NAME" in capsys.readouterr().err
