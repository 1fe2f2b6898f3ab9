"""`tidelog group`, and `tidelog consume --group`."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidelog.group_servers import group_server_in_a_thread
from tidelog.cli import main
from tidelog.cli.client import ask
from tidelog.client.client import Client

Printed = pytest.CaptureFixture[str]

_numbers = itertools.count()


@pytest.fixture(scope="module")
def group_server() -> Iterator[str]:
    with group_server_in_a_thread() as address:
        yield address


@pytest.fixture
def orders(
    group_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, capsys: Printed
) -> str:
    """Return a topic of two partitions, with ten records in the first, that no other test uses."""
    monkeypatch.setenv("TIDELOG_BROKER", group_server)
    name = f"orders-{next(_numbers)}"
    file = tmp_path / "lines"
    file.write_bytes(b"".join(b"%d\n" % number for number in range(10)))
    assert main.run(["topic", "create", name, "--partitions", "2"]) == 0
    assert main.run(["produce", name, "--file", str(file), "--partition", "0"]) == 0
    capsys.readouterr()
    return name


def table(printed: str) -> list[list[str]]:
    return [line.split() for line in printed.splitlines()]


def reset(group: str, topic: str, *words: str) -> int:
    return main.run(["group", "reset-offsets", group, "--topic", topic, *words])


def test_a_group_resumes_at_its_committed_offsets(orders: str, capsys: Printed) -> None:
    words = ["consume", orders, "--group", f"g-{orders}", "--from-beginning"]

    assert main.run([*words, "--max", "4"]) == 0
    first = capsys.readouterr().out.split()
    assert main.run([*words, "--until-end"]) == 0
    rest = capsys.readouterr().out.split()

    assert (first, rest) == (["0", "1", "2", "3"], ["4", "5", "6", "7", "8", "9"])
    assert main.run([*words, "--until-end"]) == 0
    assert capsys.readouterr().out == ""


def test_an_unknown_topic_is_an_error_at_once(orders: str, capsys: Printed) -> None:
    status = main.run(["consume", f"{orders}-not", "--group", "g"])

    assert (status, "there is no topic" in capsys.readouterr().err) == (1, True)


@pytest.mark.parametrize("words", [["--since", "1h"], ["--partition", "0"]])
def test_a_group_excludes_a_start_offset(words: list[str], capsys: Printed) -> None:
    status = main.run(["consume", "orders", "--group", "g", *words])

    assert status == 2
    assert "reset them with `tidelog group reset-offsets`" in capsys.readouterr().err


def test_a_group_is_moved_and_shows_before_and_after(orders: str, capsys: Printed) -> None:
    group = f"g-{orders}"
    assert reset(group, orders, "--from", "end") == 0
    assert table(capsys.readouterr().out)[1:] == [[orders, "0", "-", "10", "-"], [
        orders, "1", "-", "0", "-",
    ]]  # fmt: skip

    assert reset(group, orders, "--partition", "0", "--shift", "-3", "--dry-run") == 0
    said = capsys.readouterr()
    assert table(said.out) == [
        ["TOPIC", "PARTITION", "BEFORE", "AFTER", "CHANGE"],
        [orders, "0", "10", "7", "-3"],
    ]
    assert said.err == "nothing was changed: --dry-run\n"

    assert reset(group, orders, "--partition", "0", "--from", "2", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "group_id": group,
        "dry_run": False,
        "partitions": [{"topic": orders, "partition": 0, "previous_offset": 10, "offset": 2}],
    }
    assert reset(group, orders, "--from", "beginning") == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "add either --from PLACE or --shift N"),
        (["--from", "end", "--shift", "1"], "add either --from PLACE or --shift N"),
        (["--from", "soon"], "'soon' is no place in a log"),
        (["--to-earliest"], "--to-earliest is now --from beginning"),
        (
            ["--topic", "more", "--partition", "0", "--from", "end"],
            "--partition needs a single topic",
        ),
    ],
)
def test_an_offset_reset_needs_exactly_one_target(
    words: list[str], complaint: str, capsys: Printed
) -> None:
    status = reset("g", "orders", *words)

    assert status == 2
    assert complaint in capsys.readouterr().err


def test_a_description_shows_how_far_behind_a_group_is(orders: str, capsys: Printed) -> None:
    group = f"g-{orders}"
    reset(group, orders, "--partition", "0", "--from", "4")
    capsys.readouterr()

    assert main.run(["group", "describe", group]) == 0

    printed = capsys.readouterr().out
    assert "lag       6 records" in printed
    assert [orders, "0", "4", "10", "6", "-", "-"] in table(printed)
    assert main.run(["group", "describe", group, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["state"], found["partitions"][0]["lag_records"]) == ("empty", 6)


def test_a_group_gets_an_owner_and_alerts_before_its_first_member(
    orders: str, capsys: Printed
) -> None:
    group = f"g-{orders}"

    assert main.run(["group", "alter", group, "--set", "alert_lag_ms=5min", "--json"]) == 0
    config = {"alert_lag_ms": "5min", "alert_lag_records": "none", "owner": "none"}
    assert json.loads(capsys.readouterr().out) == {"group_id": group, "config": config}
    assert main.run(["group", "alter", group, "--set", "owner=billing"]) == 0
    lines = table(capsys.readouterr().out)
    assert ["alert_lag_ms", "5min", "group"] in lines
    assert ["alert_lag_records", "none", "default"] in lines
    assert main.run(["group", "alter", group, "--reset", "alert_lag_ms", "--reset", "owner"]) == 0
    assert [group_or_default for *_, group_or_default in table(capsys.readouterr().out)[1:]] == [
        "default"
    ] * 3
    assert main.run(["group", "alter", group]) == 2
    assert "no change is given" in capsys.readouterr().err


def test_a_description_shows_members(orders: str, group_server: str, capsys: Printed) -> None:
    group = f"g-{orders}"

    async def describe(client: Client) -> int:
        async with client.consumer(
            orders, group_id=group, group_instance_id="one", auto_offset_reset="earliest"
        ) as consumer:
            await anext(consumer.records())
            found = await client.admin.describe_group(group)
        return len(found.members)

    assert ask(describe, broker=group_server) == 1
    assert main.run(["group", "describe", group]) == 0
    assert [*["one", "tidelog-cli", "away", "2"], orders] in table(capsys.readouterr().out)


def test_groups_are_listed(orders: str, capsys: Printed) -> None:
    group = f"g-{orders}"
    reset(group, orders, "--from", "end")
    capsys.readouterr()

    assert main.run(["group", "list"]) == 0
    assert [group, "empty", "0", "-"] in table(capsys.readouterr().out)
    assert main.run(["group", "list", "--state", "empty", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {
        "group_id": group, "state": "empty", "member_count": 0, "assignor": "", "overrides": {},
    } in listed  # fmt: skip
    assert main.run(["group", "list", "--state", "assigning"]) == 0
    assert "there is no such group" in capsys.readouterr().err


def test_a_group_is_deleted_once(orders: str, capsys: Printed) -> None:
    group = f"g-{orders}"
    reset(group, orders, "--from", "end")
    capsys.readouterr()

    assert main.run(["group", "delete", group, "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"deleted": group}
    assert main.run(["group", "delete", group, "--yes"]) == 1
    assert capsys.readouterr().err == (
        f"error: there is no group '{group}'; `tidelog group list` lists the groups\n"
    )
    assert main.run(["group", "describe", group]) == 1
    assert main.run(["group", "delete", group]) == 2
