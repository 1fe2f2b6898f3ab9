"""Messages of FIFO queues: groups, deduplication, sequence numbers, attempts."""

import hashlib
from pathlib import Path

import pytest

from tests.gateway.sqs.callers import BASE_URL, open_caller
from tidelog.gateway.sqs.actions.receive import receive_message
from tidelog.gateway.sqs.actions.send import send_message, send_message_batch
from tidelog.gateway.sqs.actions.settle import delete_message
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.protocol.errors import SqsError
from tidelog.gateway.sqs.protocol.replies import MessageSent, ReceivedMessage
from tidelog.gateway.sqs.protocol.requests import (
    DeleteMessageCall,
    ReceiveMessageCall,
    SendEntry,
    SendMessageBatchCall,
    SendMessageCall,
)

URL = f"{BASE_URL}/000000000000/orders.fifo"
STANDARD_URL = f"{BASE_URL}/000000000000/orders"


async def send(
    caller: Caller, body: str, group: str | None = "g", *, send_id: str | None = None
) -> MessageSent:
    call = SendMessageCall(URL, body, message_group_id=group, message_deduplication_id=send_id)
    return await send_message(caller, call)


async def receive(caller: Caller, count: int = 10) -> list[ReceivedMessage]:
    call = ReceiveMessageCall(URL, ["All"], max_number_of_messages=count, wait_time_seconds=1)
    return (await receive_message(caller, call)).messages or []


async def test_a_duplicate_has_the_ids_of_the_original(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders.fifo", fifo=True)
        first = await send(caller, "one", send_id="d")
        again = await send(caller, "other", send_id="d")
        assert again.message_id == first.message_id
        assert again.sequence_number == first.sequence_number
        assert again.md5_of_message_body == hashlib.md5(b"other").hexdigest()
        (message,) = await receive(caller)
        assert message.attributes is not None
        assert (message.body, message.message_id) == ("one", first.message_id)
        assert message.attributes["SequenceNumber"] == first.sequence_number
        assert message.attributes["MessageDeduplicationId"] == "d"
        assert message.attributes["MessageGroupId"] == "g"


async def test_content_is_an_id_without_attributes(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue(
            "orders.fifo", fifo=True, content_based_deduplication="on"
        )
        first, again = await send(caller, "one"), await send(caller, "one")
        assert again.message_id == first.message_id
        digest = hashlib.sha256(b"one").hexdigest()
        # An explicit id that is the hash of the content is the same id.
        assert (await send(caller, "two", send_id=digest)).message_id == first.message_id
        (message,) = await receive(caller)
        assert message.attributes is not None
        assert message.attributes["MessageDeduplicationId"] == digest


async def test_sequence_numbers_grow(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders.fifo", fifo=True)
        numbers = [
            int((await send(caller, "x", send_id=f"d{number}")).sequence_number or 0)
            for number in range(5)
        ]
        assert numbers == sorted(set(numbers))


async def test_what_a_fifo_queue_needs(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders.fifo", fifo=True)
        with pytest.raises(SqsError, match="contain the parameter MessageGroupId") as caught:
            await send(caller, "x", group=None, send_id="d")
        assert caught.value.shape.query_code == "MissingParameter"
        with pytest.raises(SqsError, match="should either have ContentBasedDeduplication"):
            await send(caller, "x")
        with pytest.raises(SqsError, match=r"Value 2 for parameter DelaySeconds is invalid"):
            await send_message(
                caller,
                SendMessageCall(URL, "x", 2, message_group_id="g", message_deduplication_id="d"),
            )
        # As in the cloud, a delay of nothing is no delay of its own.
        await send_message(
            caller,
            SendMessageCall(URL, "x", 0, message_group_id="g", message_deduplication_id="d"),
        )


async def test_a_batch_without_a_group_is_refused_as_a_whole(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders.fifo", fifo=True)
        entries = [
            SendEntry("a", "x", message_group_id="g", message_deduplication_id="1"),
            SendEntry("b", "x", message_deduplication_id="2"),
        ]
        with pytest.raises(SqsError, match="contain the parameter MessageGroupId") as caught:
            await send_message_batch(caller, SendMessageBatchCall(URL, entries))
        assert caught.value.shape.query_code == "InvalidParameterValue"
        assert await receive(caller, 1) == []


async def test_a_batch_keeps_its_order(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders.fifo", fifo=True)
        entries = [
            SendEntry(str(n), f"m{n}", message_group_id="g", message_deduplication_id=str(n))
            for n in range(10)
        ]
        sent = await send_message_batch(caller, SendMessageBatchCall(URL, entries))
        assert [each.id for each in sent.successful or ()] == [str(n) for n in range(10)]
        assert [each.body for each in await receive(caller)] == [f"m{n}" for n in range(10)]


async def test_ids_of_duplicates_are_not_for_standard_queues(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders")
        text = "Value d for parameter MessageDeduplicationId is invalid. Reason: The request inc"
        with pytest.raises(SqsError, match=text):
            await send_message(
                caller, SendMessageCall(STANDARD_URL, "x", message_deduplication_id="d")
            )
        text = "Value a for parameter ReceiveRequestAttemptId is invalid"
        with pytest.raises(SqsError, match=text):
            await receive_message(
                caller, ReceiveMessageCall(STANDARD_URL, receive_request_attempt_id="a")
            )


async def test_the_same_attempt_gets_the_same_messages(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders.fifo", fifo=True)
        await send(caller, "one", send_id="1")
        call = ReceiveMessageCall(
            URL, max_number_of_messages=10, receive_request_attempt_id="attempt-7"
        )
        (first,) = (await receive_message(caller, call)).messages or []
        (again,) = (await receive_message(caller, call)).messages or []
        assert (again.message_id, again.receipt_handle) == (first.message_id, first.receipt_handle)
        await delete_message(caller, DeleteMessageCall(URL, first.receipt_handle))
        assert (await receive_message(caller, call)).messages is None
