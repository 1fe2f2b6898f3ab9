"""Differences from Amazon SQS that no other test shows: each shows what tidelog does instead."""

import json
from pathlib import Path

import pytest

import tidelog
from tests.gateway.sqs.callers import open_caller
from tidelog.gateway.sqs.actions.queue_attributes import (
    get_queue_attributes,
    set_queue_attributes,
)
from tidelog.gateway.sqs.actions.queues import create_queue, delete_queue, purge_queue
from tidelog.gateway.sqs.actions.receive import receive_message
from tidelog.gateway.sqs.actions.send import send_message
from tidelog.gateway.sqs.actions.settle import change_message_visibility, delete_message
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.protocol.errors import (
    MESSAGE_NOT_INFLIGHT,
    PURGE_QUEUE_IN_PROGRESS,
    QUEUE_DELETED_RECENTLY,
    RECEIPT_HANDLE_IS_INVALID,
    SqsError,
)
from tidelog.gateway.sqs.protocol.replies import ReceivedMessage
from tidelog.gateway.sqs.protocol.requests import (
    ChangeMessageVisibilityCall,
    CreateQueueCall,
    DeleteMessageCall,
    DeleteQueueCall,
    GetQueueAttributesCall,
    PurgeQueueCall,
    ReceiveMessageCall,
    SendMessageCall,
    SetQueueAttributesCall,
)
from tidelog.gateway.sqs.settings import FrontSettings

STRICT = FrontSettings(is_strict=True)


async def create(caller: Caller, name: str, attributes: dict[str, str] | None = None) -> str:
    url = (await create_queue(caller, CreateQueueCall(name, attributes))).queue_url
    assert url is not None
    return url


async def receive(
    caller: Caller, url: str, *, visibility_timeout: int | None = None, wait: int = 0
) -> list[ReceivedMessage]:
    call = ReceiveMessageCall(
        url, visibility_timeout=visibility_timeout, wait_time_seconds=wait or None
    )
    return (await receive_message(caller, call)).messages or []


@pytest.mark.difference(
    "Queues",
    cloud="`PurgeQueue` takes up to 60 s, may delete messages that are sent meanwhile, and fails"
    " with `PurgeQueueInProgress` if it is repeated within 60 s.",
    here="The messages that existed at the request are gone when it returns, no others are, and"
    " it may be repeated at once.",
    why="A purge is one decision of the broker.",
    switch="`--strict-sqs` refuses a second purge for 60 s, by the memory of one front and user",
)
async def test_a_queue_may_be_purged_again_at_once(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        url = await create(caller, "orders")
        for _ in range(2):
            await send_message(caller, SendMessageCall(url, "hello"))
            await purge_queue(caller, PurgeQueueCall(url))
        await send_message(caller, SendMessageCall(url, "later"))
        assert [each.body for each in await receive(caller, url)] == ["later"]

        strict = caller._replace(settings=STRICT)
        await purge_queue(strict, PurgeQueueCall(url))
        with pytest.raises(SqsError, match="on orders is allowed every 60 seconds") as raised:
            await purge_queue(strict, PurgeQueueCall("orders"))  # A name is an address, too.
        assert raised.value.shape is PURGE_QUEUE_IN_PROGRESS


@pytest.mark.difference(
    "Queues",
    cloud="After `DeleteQueue` the name is taken for 60 s: `CreateQueue` fails with"
    " `QueueDeletedRecently`.",
    here="A queue may be created again at once. Receipt handles of the old one are invalid.",
    why="Queues have ids, so an old and a new queue of one name are not confused.",
    switch="`--strict-sqs` refuses the name for 60 s, by the memory of one front and user",
)
async def test_a_queue_may_be_created_again_at_once(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        url = await create(caller, "orders")
        await send_message(caller, SendMessageCall(url, "hello"))
        (message,) = await receive(caller, url)
        await delete_queue(caller, DeleteQueueCall(url))
        assert await create(caller, "orders") == url
        with pytest.raises(SqsError) as raised:
            await delete_message(caller, DeleteMessageCall(url, message.receipt_handle))
        assert raised.value.shape is RECEIPT_HANDLE_IS_INVALID

        strict = caller._replace(settings=STRICT)
        await delete_queue(strict, DeleteQueueCall(url))
        with pytest.raises(SqsError, match="You must wait 60 seconds") as raised:
            await create(strict, "orders")
        assert raised.value.shape is QUEUE_DELETED_RECENTLY


@pytest.mark.difference(
    "Queues",
    cloud="`Policy`, `AddPermission` and the attributes of encryption decide about access and"
    " keys.",
    here="They are checked, stored and returned, and have no effect.",
    why="Users, grants and encryption are those of tidelog: [access](access.md),"
    " [encryption](encryption.md).",
)
async def test_policies_and_keys_have_no_effect(tmp_path: Path) -> None:
    statement = {"Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    given = {"Policy": policy, "KmsMasterKeyId": "alias/none"}
    async with open_caller(tmp_path) as caller:
        url = await create(caller, "orders", given)

        await send_message(caller, SendMessageCall(url, "hello"))

        assert [each.body for each in await receive(caller, url)] == ["hello"]
        found = await get_queue_attributes(caller, GetQueueAttributesCall(url, list(given)))
        assert found.attributes == given


@pytest.mark.difference(
    "Queues",
    cloud="`ApproximateNumberOf...` are approximate, and follow within a minute.",
    here="They are exact.",
    why="The broker of a partition knows all of its messages.",
)
async def test_numbers_of_messages_are_exact(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        url = await create(caller, "orders")
        await send_message(caller, SendMessageCall(url, "hello"))
        await send_message(caller, SendMessageCall(url, "later", 60))
        await send_message(caller, SendMessageCall(url, "more"))
        await receive(caller, url)

        asked = GetQueueAttributesCall(url, ["All"])
        found = (await get_queue_attributes(caller, asked)).attributes or {}
        prefix = "ApproximateNumberOfMessages"
        assert [found[prefix + each] for each in ("", "NotVisible", "Delayed")] == ["1", "1", "1"]


@pytest.mark.difference(
    "Messages",
    cloud="In a standard queue an older receipt handle may change the visibility of a message"
    " that was received again.",
    here="It fails with `MessageNotInflight`. An older handle still deletes the message.",
    why="A worker that is late must not take the message from the one that has it. [b8 and"
    " b10](queue-statements.md#receiving-and-settling)",
)
async def test_an_older_handle_does_not_change_the_visibility(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        url = await create(caller, "orders")
        await send_message(caller, SendMessageCall(url, "hello"))
        (older,) = await receive(caller, url, visibility_timeout=0)
        (latest,) = await receive(caller, url)

        call = ChangeMessageVisibilityCall(url, older.receipt_handle, 0)
        with pytest.raises(SqsError) as raised:
            await change_message_visibility(caller, call)
        assert raised.value.shape is MESSAGE_NOT_INFLIGHT
        assert not await receive(caller, url)

        await delete_message(caller, DeleteMessageCall(url, older.receipt_handle))
        await change_message_visibility_fails(caller, url, latest)


async def change_message_visibility_fails(
    caller: Caller, url: str, message: ReceivedMessage
) -> None:
    call = ChangeMessageVisibilityCall(url, message.receipt_handle, 0)
    with pytest.raises(SqsError, match="Message does not exist"):
        await change_message_visibility(caller, call)


@pytest.mark.difference(
    "Messages",
    cloud="A deleted message is gone.",
    here="It is gone from the queue. Its record stays in the topic as long as the topic keeps"
    " records, and streams and Spark read it. `DeleteQueue` deletes a topic that came with"
    " the queue.",
    why="A queue is a view of a log: replays, audits and other queues need the records.",
)
async def test_a_deleted_message_is_still_a_record(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        url = await create(caller, "orders")
        await send_message(caller, SendMessageCall(url, "hello"))
        (message,) = await receive(caller, url)
        await delete_message(caller, DeleteMessageCall(url, message.receipt_handle))

        async with caller.client.consumer("orders", auto_offset_reset="earliest") as consumer:
            record = await anext(consumer.records())
        assert record.value == b"hello"

        await delete_queue(caller, DeleteQueueCall(url))
        with pytest.raises(tidelog.UnknownTopicError):
            await caller.client.admin.delete_topic("orders")


@pytest.mark.difference(
    "Dead letters",
    cloud="A message that was received `maxReceiveCount` times moves at the next `ReceiveMessage`.",
    here="It moves when its last visibility timeout ends, or at once if that is 0, without a"
    " request. A later `DeleteMessage` succeeds, and leaves the dead letter where it is.",
    why="Counts and ages of dead letters are then true in queues that no program asks.",
)
async def test_a_message_dies_at_the_end_of_its_last_lease(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        dead = await create(caller, "dead")
        policy = {"deadLetterTargetArn": caller.scope.arn_of("dead"), "maxReceiveCount": 1}
        url = await create(caller, "orders", {"RedrivePolicy": json.dumps(policy)})
        await send_message(caller, SendMessageCall(url, "poison"))
        (message,) = await receive(caller, url, visibility_timeout=0)

        letters = await receive(caller, dead, visibility_timeout=0, wait=5)
        await delete_message(caller, DeleteMessageCall(url, message.receipt_handle))

        assert [each.body for each in letters] == ["poison"]
        assert [each.body for each in await receive(caller, dead)] == ["poison"]


@pytest.mark.difference(
    "Queues",
    cloud="A new `DelaySeconds` of a FIFO queue applies to messages that are in it.",
    here="It applies to messages that come later, as in standard queues.",
    why="A broker has told receivers which messages are visible."
    " [b34](queue-statements.md#fifo-queues)",
)
async def test_a_new_delay_of_a_fifo_queue_is_for_later_messages(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        url = await create(caller, "orders.fifo", {"FifoQueue": "true"})
        await send_message(caller, fifo_call(url, "first"))
        await send_message(caller, fifo_call(url, "second"))
        (first,) = await receive(caller, url)
        change = SetQueueAttributesCall(url, {"DelaySeconds": "900"})
        await set_queue_attributes(caller, change)
        await delete_message(caller, DeleteMessageCall(url, first.receipt_handle))
        await send_message(caller, fifo_call(url, "third"))

        (second,) = await receive(caller, url)
        assert second.body == "second"
        await delete_message(caller, DeleteMessageCall(url, second.receipt_handle))
        assert not await receive(caller, url)


def fifo_call(url: str, body: str) -> SendMessageCall:
    return SendMessageCall(url, body, message_deduplication_id=body, message_group_id="g")
