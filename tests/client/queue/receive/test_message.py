"""Messages of queues: names and origins."""

from collections.abc import Sequence

from tidelog.client.queue.receive.message import (
    Lease,
    Message,
    Verdict,
    extension,
    giving_up,
    origin_of,
)
from tidelog.client.queue.receive.receipt_handle import ReceivedPlace, place_of
from tidelog.wire.messages.queues import SettleAction

ORIGIN = (
    ("trace", b"1"),
    ("tidelog.origin.queue", b"work"),
    ("tidelog.origin.topic", b"orders"),
    ("tidelog.origin.partition", b"3"),
    ("tidelog.origin.offset", b"17"),
    ("tidelog.receive_count", b"5"),
    ("tidelog.first_received_ms", b"1000"),
    ("tidelog.last_received_ms", b"2000"),
    ("tidelog.reason", "käse".encode()),
    ("tidelog.first_sent_ms", b"500"),
)


def test_a_dead_letter_says_where_it_comes_from_and_why() -> None:
    origin = origin_of(ORIGIN)
    assert origin == ("work", "orders", 3, 17, 5, 1000, 2000, "käse", 500)


def test_other_messages_come_from_nowhere() -> None:
    assert origin_of([("trace", b"1")]) is None


def test_an_origin_that_somebody_else_wrote_does_no_harm() -> None:
    origin = origin_of([("tidelog.origin.queue", b"\xff"), ("tidelog.receive_count", b"many")])
    assert origin is not None
    assert (origin.queue, origin.receive_count, origin.reason) == ("\ufffd", 0, "")
    origin = origin_of([("tidelog.origin.queue", b"q"), ("tidelog.receive_count", b"9" * 5000)])
    assert origin is not None
    assert origin.receive_count == 0


async def test_what_is_done_with_a_message_is_told_by_its_lease() -> None:
    asked: list[tuple[Sequence[ReceivedPlace], Verdict]] = []

    async def settle(places: Sequence[ReceivedPlace], verdict: Verdict) -> None:
        asked.append((places, verdict))

    lease = Lease(b"receipt", 10.0, settle)
    message = Message("orders", 1, 7, 0, None, b"v", (), 1, 0, lease)
    assert place_of(message.receipt_handle) == (1, 7, b"receipt")
    assert message.message_id == "1-7"

    await message.extend(1.5)
    await message.release(2, reason="busy")
    assert [verdict for _, verdict in asked] == [
        Verdict(SettleAction.EXTEND, 1500),
        Verdict(SettleAction.RELEASE, 2000, "busy"),
    ]


def test_a_release_without_a_delay_leaves_it_to_the_queue() -> None:
    assert giving_up(None, "").delay_ms is None
    assert giving_up(0, "").delay_ms == 0
    assert extension(0.0004).delay_ms == 0
