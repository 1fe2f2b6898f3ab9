"""`tidelog transaction`."""

import json

import pytest
import trio

from tidelog.cli import main
from tidelog.cli.client import ask
from tidelog.client.client import Client
from tidelog.coordinator.metadata import transaction_commands
from tidelog.wire.messages.transactions import TransactionStatus

Printed = pytest.CaptureFixture[str]


def write_one_batch_and_open_another(name: str, broker_address: str) -> None:
    async def call(client: Client) -> None:
        await client.admin.create_topic(f"topic-{name}")
        transaction = client.transaction(name, 3)
        async with transaction.task() as task:
            await task.send_many(f"topic-{name}", [b"a", b"b"])
        await transaction.commit([task.result])

    async def begin(client: Client) -> None:
        async with client.transaction(name, 5).task() as task:
            await task.send_many(f"topic-{name}", [b"c"])
        while not await is_complete(client):  # noqa: ASYNC110
            await trio.sleep(0.05)

    async def is_complete(client: Client) -> bool:
        (found,) = await client.admin.list_transactions([name])
        return found.last_status == TransactionStatus.COMPLETE

    ask(call, broker=broker_address)
    ask(begin, broker=broker_address)


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
    assert line.split()[:2] == ["nightly", "5"]
    assert line.split()[5:7] == ["3", "complete"]
    assert (found["name"], found["open_transaction_id"], found["last_transaction_id"]) == (
        "nightly",
        5,
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


@pytest.mark.usefixtures("at_broker")
def test_names_are_forgotten_and_kept_ones_are_named(
    broker_address: str, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def commit(client: Client) -> None:
        for name in ("backfill-1", "backfill-2", "backfill-3"):
            await client.transaction(name, 3).commit([])
            await client.transaction(name, 4).abort()
        await client.admin.create_topic("backfill")
        async with client.transaction("backfill-2", 5).task() as task:
            await task.send_many("backfill", [b"a"])

    ask(commit, broker=broker_address)
    forget = ["transaction", "forget"]

    assert main.run([*forget, "backfill-1", "--yes"]) == 1
    printed = capsys.readouterr()
    assert printed.out == "forgot 0 names, kept 1\n"
    assert "it was used within the time" in printed.err
    assert main.run([*forget, "backfill-1", "--unused-for", "9min", "--yes"]) == 1
    assert "a client may still repeat its commit" in capsys.readouterr().err
    monkeypatch.setattr(transaction_commands, "UNUSED_MS_MIN", 0)
    assert main.run([*forget, "backfill-1", "unknown", "--unused-for", "0s", "--yes"]) == 0
    assert capsys.readouterr() == (
        "forgot 1 name, kept 0\n",
        "not known, so there is nothing to forget: unknown\n",
    )
    all_of_them = [*forget, "--prefix", "backfill-", "--unused-for", "0s", "--yes", "--json"]
    assert main.run(all_of_them) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["forgotten"] == ["backfill-3"]
    assert "its transaction 5 is open" in found["kept"]["backfill-2"]
    ask(lambda client: client.transaction("backfill-2", 5).abort(), broker=broker_address)
    assert main.run([*all_of_them[:-1]]) == 0


@pytest.mark.usefixtures("at_broker")
@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "give names, or --prefix"),
        (["nightly", "--prefix", "n"], "give names, or --prefix"),
        (["--prefix", ""], "must not be empty"),
        (["hourly"], "confirmation needed"),
    ],
)
def test_forget_refuses_to_guess(
    args: list[str],
    message: str,
    broker_address: str,
    capsys: Printed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def commit(client: Client) -> None:
        await client.transaction("hourly", 3).commit([])
        await client.transaction("hourly", 4).abort()

    ask(commit, broker=broker_address)

    assert main.run(["transaction", "forget", *args]) == 2
    assert message in capsys.readouterr().err
    monkeypatch.setattr(transaction_commands, "UNUSED_MS_MIN", 0)
    ask(
        lambda client: client.admin.forget_transactions(["hourly"], unused_for=0),
        broker=broker_address,
    )
