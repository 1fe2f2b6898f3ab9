"""Handles of SQS: deletes and visibility timeouts, alone and in batches."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.gateway.sqs.callers import BASE_URL, open_caller
from tidelog.gateway.sqs.actions.receive import receive_message
from tidelog.gateway.sqs.actions.send import send_message, send_message_batch
from tidelog.gateway.sqs.actions.settle import (
    change_message_visibility,
    change_message_visibility_batch,
    delete_message,
    delete_message_batch,
)
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.failures import error_of
from tidelog.gateway.sqs.protocol.errors import SqsError
from tidelog.gateway.sqs.protocol.replies import ReceivedMessage
from tidelog.gateway.sqs.protocol.requests import (
    ChangeMessageVisibilityBatchCall,
    ChangeMessageVisibilityCall,
    ChangeVisibilityEntry,
    DeleteEntry,
    DeleteMessageBatchCall,
    DeleteMessageCall,
    ReceiveMessageCall,
    SendEntry,
    SendMessageBatchCall,
    SendMessageCall,
)
from tidelog.wire.errors import TidelogError, UnknownQueueError

URL = f"{BASE_URL}/000000000000/orders"
FIFO_URL = f"{URL}.fifo"


async def receive(caller: Caller, url: str = URL, **fields: int) -> list[ReceivedMessage]:
    reply = await receive_message(caller, ReceiveMessageCall(url, **fields))  # type: ignore[arg-type]
    return reply.messages or []


async def send(caller: Caller, count: int) -> None:
    entries = [SendEntry(str(number), f"body {number}") for number in range(count)]
    assert not (await send_message_batch(caller, SendMessageBatchCall(URL, entries))).failed


async def test_a_handle_may_delete_twice(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders")
        await send(caller, 1)
        (message,) = await receive(caller)
        for _ in range(2):
            await delete_message(caller, DeleteMessageCall(URL, message.receipt_handle))


async def test_texts_that_are_no_handles(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders")
        with pytest.raises(SqsError, match='The input receipt handle "x" is not a valid') as caught:
            await delete_message(caller, DeleteMessageCall(URL, "x"))
        assert caught.value.shape.query_code == "ReceiptHandleIsInvalid"
        with pytest.raises(SqsError, match="is not a valid receipt handle"):
            await change_message_visibility(caller, ChangeMessageVisibilityCall(URL, "x", 5))
        with pytest.raises(SqsError, match="must contain the parameter ReceiptHandle"):
            await delete_message(caller, DeleteMessageCall(URL))
        reply = await delete_message_batch(
            caller, DeleteMessageBatchCall(URL, [DeleteEntry("a", "x"), DeleteEntry("b", "y")])
        )
        failed = [(each.id, each.code, each.sender_fault) for each in reply.failed or ()]
        assert failed == [
            ("a", "ReceiptHandleIsInvalid", True),
            ("b", "ReceiptHandleIsInvalid", True),
        ]


async def test_a_handle_of_another_queue_is_invalid(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        for name in ("orders", "others"):
            await caller.client.admin.create_queue(name)
        await send(caller, 1)
        (message,) = await receive(caller)
        call = DeleteMessageCall(URL.replace("orders", "others"), message.receipt_handle)
        with pytest.raises(SqsError, match="is not a valid receipt handle"):
            await delete_message(caller, call)


async def test_entries_of_a_delete_batch_fail_alone(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders")
        await send(caller, 2)
        one, two = await receive(caller, max_number_of_messages=10)
        entries = [
            DeleteEntry("a", one.receipt_handle),
            DeleteEntry("b", "x"),
            DeleteEntry("c"),
            DeleteEntry("d", two.receipt_handle),
        ]
        reply = await delete_message_batch(caller, DeleteMessageBatchCall(URL, entries))
        assert [each.id for each in reply.successful or ()] == ["a", "d"]
        assert [(each.id, each.code) for each in reply.failed or ()] == [
            ("b", "ReceiptHandleIsInvalid"),
            ("c", "MissingParameter"),
        ]


async def test_a_visibility_timeout_of_zero_makes_a_message_visible(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders")
        await send(caller, 1)
        (message,) = await receive(caller)
        assert not await receive(caller)
        call = ChangeMessageVisibilityCall(URL, message.receipt_handle, 0)
        await change_message_visibility(caller, call)
        (again,) = await receive(caller)
        assert again.message_id == message.message_id
        assert again.receipt_handle != message.receipt_handle


async def test_visibility_timeouts_have_limits(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders")
        await send(caller, 1)
        (message,) = await receive(caller)
        handle = message.receipt_handle
        for seconds in (-1, 43_201):
            with pytest.raises(SqsError, match="Must be >= 0 and <= 43200, if provided"):
                await change_message_visibility(
                    caller, ChangeMessageVisibilityCall(URL, handle, seconds)
                )
        with pytest.raises(SqsError, match="must contain the parameter VisibilityTimeout"):
            await change_message_visibility(caller, ChangeMessageVisibilityCall(URL, handle))
        # It was received some milliseconds ago, so 12 hours from now are too long by that.
        await trio.sleep(0.005)
        with pytest.raises(SqsError, match=r"beyond the limit \[43200 seconds\]"):
            await change_message_visibility(
                caller, ChangeMessageVisibilityCall(URL, handle, 43_200)
            )


async def test_a_deleted_message_has_no_visibility_timeout(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders")
        await send(caller, 1)
        (message,) = await receive(caller)
        await delete_message(caller, DeleteMessageCall(URL, message.receipt_handle))
        with pytest.raises(SqsError, match="Message does not exist or is not available") as caught:
            await change_message_visibility(
                caller, ChangeMessageVisibilityCall(URL, message.receipt_handle, 5)
            )
        assert caught.value.shape.query_code == "InvalidParameterValue"


async def test_entries_of_a_visibility_batch_have_their_own_timeouts(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders")
        await send(caller, 3)
        one, two, three = await receive(caller, max_number_of_messages=10)
        entries = [
            ChangeVisibilityEntry("a", one.receipt_handle, 0),
            ChangeVisibilityEntry("b", two.receipt_handle, 600),
            ChangeVisibilityEntry("c", three.receipt_handle, 0),
            ChangeVisibilityEntry("d", "x", 0),
            ChangeVisibilityEntry("e", one.receipt_handle, 50_000),
        ]
        reply = await change_message_visibility_batch(
            caller, ChangeMessageVisibilityBatchCall(URL, entries)
        )
        assert [each.id for each in reply.successful or ()] == ["a", "b", "c"]
        assert [(each.id, each.code) for each in reply.failed or ()] == [
            ("d", "ReceiptHandleIsInvalid"),
            ("e", "InvalidParameterValue"),
        ]
        visible = await receive(caller, max_number_of_messages=10)
        assert {each.message_id for each in visible} == {one.message_id, three.message_id}


async def test_a_released_handle_of_a_fifo_queue_has_expired(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders.fifo", fifo=True)
        call = SendMessageCall(
            FIFO_URL, "hello", message_group_id="g", message_deduplication_id="d"
        )
        await send_message(caller, call)
        (message,) = await receive(caller, FIFO_URL)
        handle = message.receipt_handle
        await change_message_visibility(caller, ChangeMessageVisibilityCall(FIFO_URL, handle, 0))
        with pytest.raises(SqsError, match="Reason: The receipt handle has expired") as caught:
            await delete_message(caller, DeleteMessageCall(FIFO_URL, handle))
        assert caught.value.shape.query_code == "InvalidParameterValue"
        with pytest.raises(SqsError, match="is not available for visibility timeout change"):
            await change_message_visibility(
                caller, ChangeMessageVisibilityCall(FIFO_URL, handle, 5)
            )


async def test_a_queue_that_does_not_exist(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders")
        await send(caller, 1)
        (message,) = await receive(caller)
        missing = URL.replace("orders", "missing")
        handle = message.receipt_handle
        calls: list[Callable[[], Awaitable[object]]] = [
            partial(send_message, caller, SendMessageCall(missing, "x")),
            partial(receive_message, caller, ReceiveMessageCall(missing)),
            partial(delete_message, caller, DeleteMessageCall(missing, handle)),
            partial(
                delete_message_batch,
                caller,
                DeleteMessageBatchCall(missing, [DeleteEntry("a", handle)]),
            ),
            partial(
                change_message_visibility, caller, ChangeMessageVisibilityCall(missing, handle, 5)
            ),
        ]
        for call in calls:
            with pytest.raises(TidelogError) as caught:
                await call()
            error = error_of(caught.value)
            assert error.message == "The specified queue does not exist."
            assert error.shape.json_name == "QueueDoesNotExist"


async def test_a_batch_for_a_queue_that_does_not_exist_fails_as_a_whole(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders")
        await send(caller, 2)
        missing = f"{BASE_URL}/000000000000/missing"
        handles = [(await receive(caller))[0].receipt_handle for _ in range(2)]
        changes = [
            ChangeVisibilityEntry(str(place), handle, place) for place, handle in enumerate(handles)
        ]
        deletes = [DeleteEntry(str(place), handle) for place, handle in enumerate(handles)]
        with pytest.raises(UnknownQueueError):
            await change_message_visibility_batch(
                caller, ChangeMessageVisibilityBatchCall(missing, changes)
            )
        with pytest.raises(UnknownQueueError):
            await delete_message_batch(caller, DeleteMessageBatchCall(missing, deletes))
