"""`tidelog queue history`."""

import json
from collections.abc import Sequence

import pytest

from tidelog.cli import main
from tidelog.cli.client import ask
from tidelog.cli.queue.history import event_as_json, print_events
from tidelog.client.client import Client
from tidelog.client.queue.inspect.history import EventKind, HistoryEvent

Printed = pytest.CaptureFixture[str]
TIME_MS = 1_700_000_000_000


def reject_one(name: str, broker_address: str) -> str:
    async def call(client: Client) -> str:
        await client.admin.create_queue(f"{name}-dead")
        await client.admin.create_queue(name, dead_letter_queue=f"{name}-dead")
        queue = client.queue(name, holder="worker 7")
        await queue.send(b"a")
        (message,) = await queue.receive(1, wait=10)
        await message.reject("no number")
        return message.message_id

    return ask(call, broker=broker_address)


@pytest.mark.usefixtures("at_broker")
def test_the_history_of_a_message_is_shown(broker_address: str, capsys: Printed) -> None:
    message_id = reject_one("jobs", broker_address)
    words = ["queue", "history", "jobs", "--message", message_id, "--since", "1h"]

    assert main.run(words) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert main.run([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)

    assert heading.split()[:3] == ["TIME", "EVENT", "MESSAGE"]
    (letter,) = (line for line in lines if "dead-letter" in line)
    assert letter.endswith("to jobs-dead/0, no number")
    (received,) = (each for each in found if each["event"] == "receive")
    assert (received["message_id"], received["holder"]) == ("0-0", "worker 7")
    assert received["receive_count"] == 1


@pytest.mark.usefixtures("at_broker")
def test_what_makes_no_sense_is_refused_in_one_line(broker_address: str, capsys: Printed) -> None:
    reject_one("others", broker_address)

    assert main.run(["queue", "history", "others", "--message", "x"]) == 2
    assert "no message id" in capsys.readouterr().err
    assert main.run(["queue", "history", "nope"]) == 1
    assert "nope" in capsys.readouterr().err
    assert main.run(["queue", "history", "others", "--message", "7-0"]) == 0
    assert "the history of the queue has no such event" in capsys.readouterr().err


def printed(events: Sequence[HistoryEvent], capsys: Printed) -> list[str]:
    print_events(events, {b"known": "orders"})
    return capsys.readouterr().out.splitlines()[1:]


def test_an_event_of_many_messages_has_count_and_offset(capsys: Printed) -> None:
    purge = HistoryEvent(1, TIME_MS, EventKind.PURGE, below_offset=20, message_count=0)
    moved = HistoryEvent(
        2, TIME_MS, EventKind.MOVED, target=(b"known", 3), message_count=2, partition=5
    )

    first, second = printed([purge, moved], capsys)

    assert first.split()[3:] == ["purge", "0-*", "-", "-", "-", "at", "offset", "20"]
    assert second.split()[3:5] == ["moved", "5-*"]
    assert second.endswith(" 2 messages, to orders/3")
    assert event_as_json(moved, {})["target"] == f"{b'known'.hex()}/3"


@pytest.mark.usefixtures("at_broker")
def test_the_messages_of_a_trace_are_shown(broker_address: str, capsys: Printed) -> None:
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"

    async def call(client: Client) -> None:
        await client.admin.create_queue("traced")
        queue = client.queue("traced")
        parent = f"00-{trace_id}-00f067aa0ba902b7-01".encode()
        await queue.send(b"a")
        await queue.send(b"b", headers=[("traceparent", parent)])
        await queue.delete_batch(await queue.receive(2, wait=10))

    ask(call, broker=broker_address)
    words = ["queue", "history", "traced"]

    assert main.run([*words, "--trace", trace_id]) == 0
    _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[3:5] for line in lines] == [["receive", "0-1"], ["delete", "0-1"]]
    assert main.run([*words, "--trace", "f" * 32]) == 0
    assert "no message with this trace" in capsys.readouterr().err
    assert main.run([*words, "--trace", "x"]) == 2
    assert "32 hexadecimal digits" in capsys.readouterr().err
    assert main.run([*words, "--trace", trace_id, "--message", "0-1"]) == 2
    assert "exclude each other" in capsys.readouterr().err
