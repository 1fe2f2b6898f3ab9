"""Messages of SQS: what a sender sends is what a receiver gets, and a record of the topic."""

import hashlib
from pathlib import Path

import pytest

import tidelog
from tests.gateway.sqs.callers import BASE_URL, caller_of, open_caller
from tidelog.gateway.sqs.actions.queues import create_queue
from tidelog.gateway.sqs.actions.receive import receive_message
from tidelog.gateway.sqs.actions.send import send_message, send_message_batch
from tidelog.gateway.sqs.actions.settle import delete_message
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.message_record import message_id_of
from tidelog.gateway.sqs.protocol.errors import SqsError
from tidelog.gateway.sqs.protocol.requests import (
    CreateQueueCall,
    DeleteMessageCall,
    MessageAttribute,
    ReceiveMessageCall,
    SendEntry,
    SendMessageBatchCall,
    SendMessageCall,
)

URL = f"{BASE_URL}/000000000000/orders"


async def test_a_message_is_sent_received_and_deleted(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders")
        sent = await send_message(caller, SendMessageCall(URL, "hello"))
        assert sent.md5_of_message_body == hashlib.md5(b"hello").hexdigest()
        got = await receive_message(caller, ReceiveMessageCall(URL, wait_time_seconds=1))
        (message,) = got.messages or []
        assert (message.body, message.message_id) == ("hello", sent.message_id)
        await delete_message(caller, DeleteMessageCall(URL, message.receipt_handle))
        counts = await caller.client.queue("orders").counts()
        assert sum(each.visible + each.in_flight for each in counts) == 0


@pytest.mark.parametrize("is_batch", [False, True], ids=["single", "batch"])
@pytest.mark.parametrize("name", ["orders", "orders.fifo"])
async def test_an_id_is_of_the_topic_that_another_front_has_recreated(
    tmp_path: Path, name: str, *, is_batch: bool
) -> None:
    is_fifo = name.endswith(".fifo")
    group = "a" if is_fifo else None

    async def sent_id(caller: Caller, sent: str) -> str | None:
        url, sent_once = caller.scope.url_of(name), sent if is_fifo else None
        if not is_batch:
            call = SendMessageCall(
                url, sent, message_group_id=group, message_deduplication_id=sent_once
            )
            return (await send_message(caller, call)).message_id
        entry = SendEntry("a", sent, message_group_id=group, message_deduplication_id=sent_once)
        result = await send_message_batch(caller, SendMessageBatchCall(url, [entry]))
        return next(each.message_id for each in result.successful or ())

    async with (
        tidelog.open_broker(tmp_path) as broker,
        tidelog.connect(broker.address) as client,
        tidelog.connect(broker.address) as other,
    ):
        caller = caller_of(client)
        await other.admin.create_queue(name, fifo=is_fifo)
        before = await sent_id(caller, "before")
        await other.admin.delete_queue(name, with_topic=True)
        await other.admin.create_queue(name, fifo=is_fifo)

        after = await sent_id(caller, "after")

        (message,) = await other.queue(name).receive(wait=5)
        assert message.value == b"after"
        assert after == message_id_of(message.topic_id, message.partition, message.offset)
        assert after != before


async def test_a_message_is_a_record_with_its_attributes_as_headers(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders")
        attributes = {
            "city": MessageAttribute("String", string_value="Bonn"),
            "size": MessageAttribute("Number.int", string_value="3"),
            "raw": MessageAttribute("Binary", binary_value=b"\x00\x01"),
        }
        await send_message(caller, SendMessageCall(URL, "hello", None, attributes))
        (native,) = await caller.client.queue("orders").receive(1, visibility_timeout=0)
        assert native.value == b"hello"
        headers = dict(native.headers)
        assert (headers["city"], headers["size"], headers["raw"]) == (b"Bonn", b"3", b"\x00\x01")
        got = await receive_message(
            caller,
            ReceiveMessageCall(URL, ["All"], None, ["All"], wait_time_seconds=1),
        )
        (message,) = got.messages or []
        assert message.message_attributes == attributes
        assert message.attributes is not None
        assert message.attributes["SenderId"] == caller.sender[0][1].decode()
        assert message.attributes["ApproximateReceiveCount"] == "2"


async def test_entries_of_a_batch_fail_alone(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders")
        entries = [SendEntry("a", "one"), SendEntry("b", ""), SendEntry("c", "x\x01")]
        result = await send_message_batch(caller, SendMessageBatchCall(URL, entries))
        assert [each.id for each in result.successful or ()] == ["a"]
        failed = [(each.id, each.code, each.sender_fault) for each in result.failed or ()]
        assert failed == [("b", "MissingParameter", True), ("c", "InvalidMessageContents", True)]


async def test_a_queue_may_have_a_smaller_limit_for_messages(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        attributes = {"MaximumMessageSize": "1024"}
        await create_queue(caller, CreateQueueCall("orders", attributes))
        reason = "Reason: Message must be shorter than 1024 bytes."
        with pytest.raises(SqsError, match="One or more parameters are invalid. " + reason):
            await send_message(caller, SendMessageCall(URL, "a" * 1025))
        entries = [SendEntry("a", "a" * 1025), SendEntry("b", "a" * 1024)]
        result = await send_message_batch(caller, SendMessageBatchCall(URL, entries))
        assert [each.id for each in result.successful or ()] == ["b"]
        assert [each.message for each in result.failed or ()] == [
            "One or more parameters cannot be validated. " + reason
        ]
