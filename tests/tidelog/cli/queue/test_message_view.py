"""Messages as tables and as JSON."""

import json
from collections.abc import Sequence

import pytest

from tidelog.cli.queue.message_view import (
    message_as_json,
    print_dead_letters,
    print_messages,
    print_seen,
    seen_as_json,
)
from tidelog.client.consumer.fetch.record import Record
from tidelog.client.queue.inspect.peek import PeekedMessage
from tidelog.client.queue.receive.message import Lease, Message, Verdict
from tidelog.client.queue.receive.receipt_handle import ReceivedPlace
from tidelog.wire.messages.queues import MessageState

Printed = pytest.CaptureFixture[str]
ORIGIN = (
    ("tidelog.origin.queue", b"work"),
    ("tidelog.origin.topic", b"orders"),
    ("tidelog.origin.partition", b"3"),
    ("tidelog.origin.offset", b"17"),
    ("tidelog.receive_count", b"5"),
    ("tidelog.reason", b"KeyError: 'delay'\n\nTraceback ..."),
)


async def settle(places: Sequence[ReceivedPlace], verdict: Verdict) -> None:
    """Settle nothing."""


MESSAGE = Message("orders", 1, 7, 1000, b"k", b"\xff", (), 2, 500, Lease(b"r", 0.0, settle))


def seen(*, headers: tuple[tuple[str, bytes], ...] = ()) -> PeekedMessage:
    record = Record("dead", 0, 4, 1000, None, b"line\nfeed", headers)
    return PeekedMessage(record, MessageState.IN_FLIGHT, 1, 2_000_000, "me", "busy\nvery")


def test_programs_are_told_everything(capsys: Printed) -> None:
    del capsys
    found = message_as_json(MESSAGE)
    assert json.loads(json.dumps(found)) == found
    assert found["value"] == {"base64": "/w=="}
    assert (found["message_id"], found["receive_count"]) == ("1-7", 2)
    assert found["receipt_handle"] == MESSAGE.receipt_handle
    looked = seen_as_json(seen(headers=ORIGIN))
    assert (looked["state"], looked["holder"], looked["visible_at_ms"]) == (
        "in-flight",
        "me",
        2000000,
    )
    origin = looked["origin"]
    assert isinstance(origin, dict)
    assert (origin["queue"], origin["offset"], origin["receive_count"]) == ("work", 17, 5)


def test_people_see_one_line_for_each_message(capsys: Printed) -> None:
    print_messages([MESSAGE])
    _, line = capsys.readouterr().out.splitlines()
    assert line.split()[:2] == ["1-7", "2"]
    assert "\\xff" in line
    print_seen([seen()])
    _, line = capsys.readouterr().out.splitlines()
    assert line.split() == [
        *("0-4", "in-flight", "1", "1970-01-01", "00:33:20", "UTC", "me", "-", "line", "feed")
    ]


def test_a_dead_letter_is_shown_as_it_was_where_it_comes_from(capsys: Printed) -> None:
    print_dead_letters([seen(headers=ORIGIN), seen()])
    _, moved, here = capsys.readouterr().out.splitlines()
    assert moved.split() == ["3-17", "5", "-", "line", "feed", "KeyError:", "'delay'"]
    assert here.split() == ["0-4", "1", "-", "line", "feed", "busy"]


def test_what_controls_a_terminal_is_shown_and_does_not(capsys: Printed) -> None:
    record = Record("dead", 0, 4, 1000, b"\x1b[31m", b"\x00\x07 k\xc3\xa4se \xff", ())

    print_seen([PeekedMessage(record, MessageState.VISIBLE, 0, None, "", "")])

    assert capsys.readouterr().out.split("\n")[1].endswith("\\x1b[31m  \\x00\\x07 käse \\xff")
