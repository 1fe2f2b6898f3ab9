"""`tidelog audit`."""

import json
from collections.abc import Iterator

import pytest

from tests.tidelog.cli.conftest import BrokerThread
from tidelog.cli import main
from tidelog.cli.client import ask
from tidelog.cli.security.audit import UsageSums, matcher, printable
from tidelog.client.client import Client

Printed = pytest.CaptureFixture[str]
DAY_MS = 24 * 3_600_000


@pytest.fixture(scope="module")
def audited_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a broker with audit, and leave records of two topics."""
    folder = tmp_path_factory.mktemp("audited")
    with BrokerThread(folder, audit="on") as address:
        ask(create_topics, broker=address)
    with BrokerThread(folder, audit="on") as address:
        yield address


async def create_topics(client: Client) -> None:
    await client.admin.create_topic("orders")
    await client.admin.create_topic("payments")
    async with client.producer() as producer:
        await producer.send("orders", b"one")


@pytest.fixture
def at_audited(audited_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_BROKER", audited_address)


@pytest.mark.usefixtures("at_audited")
def test_records_are_found_by_kind_action_and_resource(capsys: Printed) -> None:
    assert main.run(["audit", "search", "--action", "topic.*"]) == 0
    both = capsys.readouterr().out.splitlines()
    assert main.run(["audit", "search", "--resource", "topic:pay*", "--json"]) == 0
    (found,) = capsys.readouterr().out.splitlines()
    assert main.run(["audit", "search", "--kind", "denial"]) == 0
    nothing = capsys.readouterr()

    assert [line.split("  ")[1:6] for line in both] == [
        ["administration", "anonymous", "topic.create", "topic:orders", "ok"],
        ["administration", "anonymous", "topic.create", "topic:payments", "ok"],
    ]
    record = json.loads(found)
    assert (record["action"], record["resource"]) == ("topic.create", "topic:payments")
    assert nothing.out == ""
    assert nothing.err == "no audit record matches; --from 30d searches further back\n"


@pytest.mark.usefixtures("at_audited")
def test_the_first_records_end_a_search_with_a_maximum(capsys: Printed) -> None:
    assert main.run(["audit", "search", "--from", "beginning", "--follow", "-n", "2"]) == 0

    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.usefixtures("at_audited")
def test_usage_is_summed_by_principal_and_topic(capsys: Printed) -> None:
    assert main.run(["audit", "usage", "--resource", "topic:orders"]) == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert main.run(["audit", "usage", "--resource", "topic:orders", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)

    assert heading.split()[:3] == ["TIME", "PRINCIPAL", "RESOURCE"]
    assert line.split()[1:5] == ["anonymous", "topic:orders", "1", "1"]
    assert (found["records_in"], found["principal"]) == (1, "anonymous")
    assert found["bytes_in"] > 0


@pytest.mark.usefixtures("at_broker")
def test_a_cluster_without_audit_is_said_in_one_line(capsys: Printed) -> None:
    assert main.run(["audit", "search"]) == 1

    assert capsys.readouterr().err.startswith("error: there are no audit records: no broker")


def test_usage_adds_up_by_day_hour_or_in_total() -> None:
    def record(time_ms: int, bytes_in: int) -> dict[str, object]:
        return {
            "time_ms": time_ms,
            "principal": "user:alice",
            "resource": "topic:orders",
            "bytes_in": bytes_in,
        }

    def sums(by: str) -> list[tuple[str, int]]:
        found = UsageSums(by)
        for each in (record(0, 1), record(3_600_000, 2), record(DAY_MS, 4)):
            found.add(each)
        return [(row.time, row.bytes_in) for row in found.rows()]

    assert sums("day") == [("1970-01-01", 3), ("1970-01-02", 4)]
    assert sums("hour") == [("1970-01-01 00", 1), ("1970-01-01 01", 2), ("1970-01-02 00", 4)]
    assert sums("total") == [("", 7)]


def test_patterns_choose_records_by_all_that_is_given() -> None:
    is_chosen = matcher(
        {"principal": "user:*", "action": "*", "resource": "*", "result": "NOT_*"}, ("denial",)
    )
    denial = {"kind": "denial", "principal": "user:alice", "result": "NOT_AUTHORIZED"}

    assert is_chosen(denial)
    assert not is_chosen({**denial, "kind": "grant"})
    assert not is_chosen({**denial, "principal": "anonymous"})
    assert not is_chosen({**denial, "result": "ok"})


def test_control_characters_of_names_do_not_reach_the_terminal() -> None:
    assert printable("topic:\x1b[2Jx") == r"topic:\x1b[2Jx"
    assert printable("grün") == "grün"
