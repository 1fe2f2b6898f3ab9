"""Large messages, dead letters, tenants, native messages, and limits."""

import random
from pathlib import Path

import pytest
import trio

from tests.gateway.sqs.callers import BASE_URL, open_caller
from tidelog.gateway.sqs.actions.receive import receive_message
from tidelog.gateway.sqs.actions.send import send_message, send_message_batch
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.failures import error_of
from tidelog.gateway.sqs.message_checks import MESSAGE_BYTES_MAX
from tidelog.gateway.sqs.protocol.errors import SqsError
from tidelog.gateway.sqs.protocol.replies import MessageSent, ReceivedMessage
from tidelog.gateway.sqs.protocol.requests import (
    MessageAttribute,
    ReceiveMessageCall,
    SendEntry,
    SendMessageBatchCall,
    SendMessageCall,
)
from tidelog.wire.errors import OverLimitError

URL = f"{BASE_URL}/000000000000/orders"
DEAD_URL = f"{URL}-dead"


async def receive(
    caller: Caller, url: str = URL, *, count: int = 10, visibility_s: int | None = None
) -> list[ReceivedMessage]:
    call = ReceiveMessageCall(url, ["All"], None, ["All"], count, visibility_s, 1)
    return (await receive_message(caller, call)).messages or []


@pytest.mark.parametrize("name", ["orders", "orders.fifo"])
@pytest.mark.parametrize("in_attributes", [0, 900_000, MESSAGE_BYTES_MAX - 1 - 9])
async def test_messages_of_a_mebibyte(tmp_path: Path, name: str, in_attributes: int) -> None:
    async with open_caller(tmp_path) as caller:
        is_fifo = name.endswith(".fifo")
        await caller.client.admin.create_queue(name, fifo=is_fifo)
        url = f"{BASE_URL}/000000000000/{name}"
        content = random.Random(1).randbytes(in_attributes)
        attributes = (
            {
                "raw": MessageAttribute("Binary", binary_value=content),
            }
            if in_attributes
            else None
        )
        overhead = len("raw" + "Binary") if in_attributes else 0
        letters = random.Random(2)
        body = "".join(
            letters.choices("abcdefghij", k=MESSAGE_BYTES_MAX - in_attributes - overhead)
        )
        group, sent_id = ("g", "d") if is_fifo else (None, None)

        async def send(text: str) -> MessageSent:
            call = SendMessageCall(url, text, None, attributes, None, sent_id, group)
            return await send_message(caller, call)

        sent = await send(body)
        (message,) = await receive(caller, url)
        assert (message.message_id, message.body) == (sent.message_id, body)
        assert message.message_attributes == attributes
        assert message.md5_of_message_attributes == sent.md5_of_message_attributes
        with pytest.raises(SqsError, match=f"must be shorter than {MESSAGE_BYTES_MAX} bytes"):
            await send(body + "x")


async def test_a_dead_letter_keeps_its_id_and_counts_on(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        admin = caller.client.admin
        await admin.create_queue("orders-dead")
        await admin.create_queue("orders", dead_letter_queue="orders-dead", max_receive_count=2)
        sent = await send_message(caller, SendMessageCall(URL, "hello"))
        times: list[str] = []
        for count in ("1", "2"):
            (message,) = await receive(caller, visibility_s=0)
            assert message.attributes is not None
            assert message.attributes["ApproximateReceiveCount"] == count
            times.append(message.attributes["ApproximateFirstReceiveTimestamp"])
        (dead,) = await receive(caller, DEAD_URL)
        assert dead.attributes is not None
        assert dead.message_id == sent.message_id
        assert dead.attributes["ApproximateReceiveCount"] == "3"
        assert dead.attributes["ApproximateFirstReceiveTimestamp"] == times[0] == times[1]
        assert dead.attributes["DeadLetterQueueSourceArn"] == (
            "arn:aws:sqs:us-east-1:000000000000:orders"
        )
        assert dead.attributes["SentTimestamp"] <= times[0]
        assert dead.attributes["SenderId"] == caller.sender[0][1].decode()


async def test_a_redriven_message_is_a_new_one(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        admin = caller.client.admin
        await admin.create_queue("orders-dead")
        await admin.create_queue("orders", dead_letter_queue="orders-dead", max_receive_count=1)
        sent = await send_message(caller, SendMessageCall(URL, "hello"))
        await receive(caller, visibility_s=0)
        assert await receive(caller, DEAD_URL, visibility_s=0)
        await caller.client.queue("orders-dead").redrive()
        (message,) = await receive(caller)
        assert message.attributes is not None
        assert message.message_id != sent.message_id
        assert message.attributes["ApproximateReceiveCount"] == "1"
        assert "DeadLetterQueueSourceArn" not in message.attributes


async def test_quiet_tenants_do_not_wait_for_a_noisy_one(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders", fair_delivery="on")
        for tenant, count in (("noisy", 60), ("quiet", 3)):
            for start in range(0, count, 10):
                entries = [
                    SendEntry(str(n), tenant, message_group_id=tenant)
                    for n in range(min(10, count - start))
                ]
                reply = await send_message_batch(caller, SendMessageBatchCall(URL, entries))
                assert not reply.failed
        found = [message for _ in range(4) for message in await receive(caller)]
        assert [message.body for message in found].count("quiet") == 3
        groups = {(message.attributes or {})["MessageGroupId"] for message in found}
        assert groups == {"noisy", "quiet"}


async def test_values_that_are_not_text_are_base64(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders")
        queue = caller.client.queue("orders")
        await queue.send(b"\xff", headers=[("city", b"Bonn"), ("raw", b"\x00")])
        await queue.send(None)
        first, second = sorted(await receive(caller), key=lambda each: each.body, reverse=True)
        assert first.body == "/w=="
        assert first.message_attributes == {
            "city": MessageAttribute("String", string_value="Bonn"),
            "raw": MessageAttribute("Binary", binary_value=b"\x00"),
            "tidelog.encoding": MessageAttribute("String", string_value="base64"),
        }
        assert (second.body, second.message_attributes) == ("", None)


async def test_delays_hide_messages(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders", delivery_delay=900)
        entries = [SendEntry("a", "now", 0), SendEntry("b", "later"), SendEntry("c", "later", 900)]
        reply = await send_message_batch(caller, SendMessageBatchCall(URL, entries))
        assert not reply.failed
        assert [message.body for message in await receive(caller)] == ["now"]


async def test_too_many_messages_in_flight(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders", max_in_flight=1)
        for body in ("one", "two"):
            await send_message(caller, SendMessageCall(URL, body))
        assert len(await receive(caller)) == 1
        with pytest.raises(OverLimitError) as caught:
            await receive_message(caller, ReceiveMessageCall(URL))
        error = error_of(caught.value)
        assert (error.shape.query_code, error.shape.status) == ("OverLimit", 403)


async def test_a_cancelled_receive_leaves_nothing_in_flight(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders", visibility_timeout=600)
        call = ReceiveMessageCall(URL, wait_time_seconds=20)
        for _ in range(3):
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(receive_message, caller, call)
                await trio.sleep(0.1)
                nursery.cancel_scope.cancel()
        await send_message(caller, SendMessageCall(URL, "hello"))
        (message,) = await receive(caller)
        assert (message.attributes or {})["ApproximateReceiveCount"] == "1"


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("max_number_of_messages", 0, "Must be between 1 and 10, if provided."),
        ("max_number_of_messages", 11, "Must be between 1 and 10, if provided."),
        ("wait_time_seconds", -1, "Must be >= 0 and <= 20, if provided."),
        ("wait_time_seconds", 21, "Must be >= 0 and <= 20, if provided."),
        ("visibility_timeout", 43_201, "Must be >= 0 and <= 43200, if provided."),
    ],
)
async def test_limits_of_a_receive(tmp_path: Path, field: str, value: int, text: str) -> None:
    async with open_caller(tmp_path) as caller:
        with pytest.raises(SqsError) as caught:
            await receive_message(caller, ReceiveMessageCall(URL, **{field: value}))  # type: ignore[arg-type]
        assert caught.value.message.endswith(f"is invalid. Reason: {text}")


async def test_a_size_limit_of_a_queue_holds_for_each_entry(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue(
            "orders", labels={"tidelog.sqs.MaximumMessageSize": "1024"}
        )
        entries = [SendEntry("a", "x" * 1024), SendEntry("b", "x" * 1025)]
        reply = await send_message_batch(caller, SendMessageBatchCall(URL, entries))
        assert [each.id for each in reply.successful or ()] == ["a"]
        (failed,) = reply.failed or []
        assert (failed.id, failed.code) == ("b", "InvalidParameterValue")
        assert failed.message == (
            "One or more parameters cannot be validated. Reason: Message must be shorter than 1024"
            " bytes."
        )


async def test_a_message_that_cannot_be_delivered_becomes_a_dead_letter(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        admin = caller.client.admin
        await admin.create_queue("orders-dead")
        await admin.create_queue("orders", dead_letter_queue="orders-dead")
        await caller.client.queue("orders").send(random.Random(1).randbytes(2 << 20))
        # The topic loses the first chunk of the value.
        await admin.delete_records("orders", 0, 1)
        assert await receive(caller) == []
        (dead,) = await caller.client.queue("orders").dead_letters()
        assert dead.origin is not None
        assert dead.origin.reason.startswith("the SQS front cannot deliver it: ")
