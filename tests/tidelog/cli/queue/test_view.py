"""The output of `tidelog queue`."""

import json
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from tidelog.cli.queue.view import (
    message_as_json,
    print_dead_letters,
    print_messages,
    print_queue,
    print_queues,
    print_seen,
    queue_as_json,
    seen_as_json,
)
from tidelog.client.admin.queue_counts import DescribedQueue, MessageCounts
from tidelog.client.consumer.fetch.record import Record
from tidelog.client.queue.inspect.peek import PeekedMessage
from tidelog.client.queue.receive.message import Disposition, Lease, Message
from tidelog.wire.messages.queue_admin import QueuePartitionDescription
from tidelog.wire.messages.queues import MessageState

Printed = pytest.CaptureFixture[str]

SENT_MS = 1_700_000_000_000
QUEUE = DescribedQueue(
    "billing",
    b"\x0a" * 16,
    "orders",
    b"\x0b" * 16,
    True,
    1_700_000_000_000,
    {
        "dead_letter_queue": "dead",
        "max_receive_count": "5",
        "retention_ms": "4d",
        "visibility_timeout_ms": "1min",
    },
    ["max_receive_count"],
    ["a", "b"],
    [
        QueuePartitionDescription(0, 1, 7, 1000, [1, 2, 3], [1, 2]),
        QueuePartitionDescription(1, None, 8, 0, [2, 3, 1], []),
    ],
    topic_retention_ms=7 * 86_400_000,
    labels={"team": "billing"},
    counts=MessageCounts(1200, 30, 4, 5, SENT_MS, 90 * 60_000),
)
UNKNOWN = replace(QUEUE, name="shipping", counts=None)
EMPTY = replace(QUEUE, name="empty", counts=MessageCounts(0, 0, 0, 0, None))


def test_json_has_every_field() -> None:
    found = json.loads(json.dumps(queue_as_json(QUEUE)))

    assert set(found) == set(DescribedQueue.__struct_fields__)
    assert set(found["counts"]) == set(MessageCounts.__struct_fields__)
    assert found["counts"]["oldest_age_ms"] == 90 * 60_000
    assert queue_as_json(UNKNOWN)["counts"] is None
    assert (found["queue_id"], found["topic_id"]) == ("0a" * 16, "0b" * 16)
    assert set(found["partitions"][1]) == set(QueuePartitionDescription.__struct_fields__)
    assert found["partitions"][1]["leader_id"] is None


def test_a_list_of_queues_has_kind_counts_and_dead_letter_queue(capsys: Printed) -> None:
    print_queues([QUEUE, UNKNOWN, EMPTY], with_counts=True)

    head, *lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert head[4:] == [
        "VISIBLE",
        "IN",
        "FLIGHT",
        "DELAYED",
        "DEAD",
        "OLDEST",
        "DEAD",
        "LETTERS",
        "TO",
    ]
    assert lines == [
        *[
            [
                "billing",
                "orders",
                "FIFO",
                "2",
                "1,200",
                "30",
                "4",
                "5",
                *["1", "h", "30", "min"],
                "dead",
            ]
        ],
        ["shipping", "orders", "FIFO", "2", "-", "-", "-", "-", "-", "dead"],
        ["empty", "orders", "FIFO", "2", "0", "0", "0", "0", "-", "dead"],
    ]


def test_a_list_without_counts_says_nothing_of_them(capsys: Printed) -> None:
    print_queues([UNKNOWN], with_counts=False)

    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["QUEUE", "TOPIC", "KIND", "PARTITIONS", "DEAD", "LETTERS", "TO"],
        ["shipping", "orders", "FIFO", "2", "dead"],
    ]


def test_a_queue_is_shown_with_settings_and_places(capsys: Printed) -> None:
    print_queue(QUEUE)

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["created", "2023-11-14", "22:13:20", "UTC"] in lines
    assert ["dead", "letters", "of", "a,", "b"] in lines
    assert ["visible", "1,200"] in lines
    assert ["oldest", "1", "h", "30", "min"] in lines
    assert ["max_receive_count", "5", "queue"] in lines
    assert ["visibility_timeout_ms", "1min", "default"] in lines
    assert ["0", "1", "7", "1,000", "1,2,3", "1,2"] in lines
    assert ["1", "-", "8", "0", "2,3,1"] in lines


@pytest.mark.statement("b97")
@pytest.mark.parametrize(
    ("own", "topic_ms", "topic_bytes", "text"),
    [
        ("4d", 7 * 86_400_000, None, "4 d (retention_ms of the queue)"),
        ("4d", 86_400_000, None, "1 d (retention_ms of topic orders)"),
        ("unlimited", 86_400_000, None, "1 d (retention_ms of topic orders)"),
        ("4d", None, None, "4 d (retention_ms of the queue)"),
        ("unlimited", None, None, "unlimited"),
        ("unlimited", None, 1 << 30, "unlimited, and the last 1.0 GiB of each partition"),
    ],
)
def test_the_description_names_the_retention_that_rules(
    capsys: Printed, own: str, topic_ms: int | None, topic_bytes: int | None, *, text: str
) -> None:
    config = {**QUEUE.config, "retention_ms": own}
    print_queue(
        replace(
            QUEUE, config=config, topic_retention_ms=topic_ms, topic_retention_bytes=topic_bytes
        )
    )

    assert text in " ".join(capsys.readouterr().out.split())


ORIGIN = (
    ("tidelog.origin.queue", b"work"),
    ("tidelog.origin.topic", b"orders"),
    ("tidelog.origin.partition", b"3"),
    ("tidelog.origin.offset", b"17"),
    ("tidelog.receive_count", b"5"),
    ("tidelog.reason", b"KeyError: 'delay'\n\nTraceback ..."),
)


async def settle(messages: Sequence[Message], verdict: Disposition) -> None:
    """Settle nothing."""


MESSAGE = Message("orders", 1, 7, 1000, b"k", b"\xff", (), 2, 500, Lease(b"r", 0.0, settle))


def seen(*, headers: tuple[tuple[str, bytes], ...] = ()) -> PeekedMessage:
    record = Record("dead", 0, 4, 1000, None, b"line\nfeed", headers)
    return PeekedMessage(record, MessageState.IN_FLIGHT, 1, 2_000_000, "me", "busy\nvery")


def test_json_of_a_message_has_every_field(capsys: Printed) -> None:
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


def test_a_table_has_one_line_per_message(capsys: Printed) -> None:
    print_messages([MESSAGE])
    _, line = capsys.readouterr().out.splitlines()
    assert line.split()[:2] == ["1-7", "2"]
    assert "\\xff" in line
    print_seen([seen()])
    _, line = capsys.readouterr().out.splitlines()
    assert line.split() == [
        *("0-4", "in-flight", "1", "1970-01-01", "00:33:20", "UTC", "me", "-", "line", "feed")
    ]


def test_a_dead_letter_is_shown_with_its_origin(capsys: Printed) -> None:
    print_dead_letters([seen(headers=ORIGIN), seen()])
    _, moved, here = capsys.readouterr().out.splitlines()
    assert moved.split() == ["3-17", "5", "-", "line", "feed", "KeyError:", "'delay'"]
    assert here.split() == ["0-4", "1", "-", "line", "feed", "busy"]


def test_control_characters_of_a_value_are_escaped(capsys: Printed) -> None:
    record = Record("dead", 0, 4, 1000, b"\x1b[31m", b"\x00\x07 k\xc3\xa4se \xff", ())

    print_seen([PeekedMessage(record, MessageState.VISIBLE, 0, None, "", "")])

    assert capsys.readouterr().out.split("\n")[1].endswith("\\x1b[31m  \\x00\\x07 käse \\xff")
