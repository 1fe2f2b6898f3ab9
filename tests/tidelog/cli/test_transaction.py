"""`tidelog transaction`."""

import json

import pytest

from tidelog.cli import main
from tidelog.cli.client import ask
from tidelog.client.client import Client

Printed = pytest.CaptureFixture[str]


def write_one_batch_and_open_another(name: str, broker_address: str) -> None:
    async def call(client: Client) -> None:
        await client.admin.create_topic(f"topic-{name}")
        transaction = client.transaction(name, 3)
        async with transaction.task() as task:
            await task.send_many(f"topic-{name}", [b"a", b"b"])
        await transaction.commit([task.result])
        async with client.transaction(name, 4).task() as task:
            await task.send_many(f"topic-{name}", [b"c"])

    ask(call, broker=broker_address)


@pytest.mark.usefixtures("at_broker")
def test_names_are_listed_with_the_batch_that_is_open_and_the_last_one(
    broker_address: str, capsys: Printed
) -> None:
    write_one_batch_and_open_another("nightly", broker_address)

    assert main.run(["transaction", "list", "nightly"]) == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert main.run(["transaction", "list", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)

    assert heading.split()[:3] == ["NAME", "OPEN", "ID"]
    assert line.split()[:2] == ["nightly", "4"]
    assert line.split()[5:7] == ["3", "complete"]
    assert (found["name"], found["open_transaction_id"], found["last_transaction_id"]) == (
        "nightly",
        4,
        3,
    )
    assert found["last_status"] == "complete"
    assert found["begun_at_ms"] < found["expires_at_ms"]


@pytest.mark.usefixtures("at_broker")
def test_an_unknown_transaction_name_is_no_error(capsys: Printed) -> None:
    assert main.run(["transaction", "list", "unknown"]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "there is no such transaction name" in printed.err
    assert main.run(["transaction", "list", "unknown", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
