"""Actions on the attributes of queues."""

import json
from pathlib import Path

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from tests.gateway.sqs.actions.test_queues import attributes_at, create
from tests.gateway.sqs.callers import open_caller
from tidelog.client.admin import queue_counts
from tidelog.gateway.sqs.actions.queue_attributes import (
    get_queue_attributes,
    set_queue_attributes,
)
from tidelog.gateway.sqs.actions.queues import list_dead_letter_source_queues
from tidelog.gateway.sqs.actions.receive import receive_message
from tidelog.gateway.sqs.actions.send import send_message
from tidelog.gateway.sqs.attributes import attributes_of
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.protocol.errors import (
    INVALID_ATTRIBUTE_VALUE,
    INVALID_PARAMETER_VALUE,
    MISSING_PARAMETER,
    SERVICE_UNAVAILABLE,
    SqsError,
)
from tidelog.gateway.sqs.protocol.requests import (
    GetQueueAttributesCall,
    ListDeadLetterSourceQueuesCall,
    ReceiveMessageCall,
    SendMessageCall,
    SetQueueAttributesCall,
)

DEFAULTS = {
    "ApproximateNumberOfMessages": "0",
    "ApproximateNumberOfMessagesDelayed": "0",
    "ApproximateNumberOfMessagesNotVisible": "0",
    "DelaySeconds": "0",
    "MaximumMessageSize": "1048576",
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "SqsManagedSseEnabled": "true",
    "VisibilityTimeout": "30",
}
FIFO_DEFAULTS = {
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "FifoQueue": "true",
    "FifoThroughputLimit": "perQueue",
}


async def change(caller: Caller, url: str, **attributes: str) -> dict[str, str]:
    await set_queue_attributes(caller, SetQueueAttributesCall(url, attributes))
    return await attributes_at(caller, url)


def policy(caller: Caller, name: str, count: int = 3) -> str:
    return json.dumps({"deadLetterTargetArn": caller.scope.arn_of(name), "maxReceiveCount": count})


async def test_a_new_queue_has_the_defaults_of_the_cloud(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        for name, given, defaults in (
            ("orders", None, DEFAULTS),
            ("orders.fifo", {"FifoQueue": "true"}, DEFAULTS | FIFO_DEFAULTS),
        ):
            found = await attributes_at(caller, await create(caller, name, given))
            (queue,) = await caller.client.admin.describe_queues([name])
            created = str(queue.created_at_ms // 1000)
            assert found == {
                **defaults,
                "QueueArn": f"arn:aws:sqs:us-east-1:000000000000:{name}",
                "CreatedTimestamp": created,
                "LastModifiedTimestamp": created,
            }


async def test_all_attributes_are_set_at_creation_and_later(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        allowed = json.dumps({"redrivePermission": "denyAll"})
        statement = json.dumps({"Version": "2012-10-17", "Statement": {"Effect": "Deny"}})
        wanted = {
            "DelaySeconds": "5",
            "KmsDataKeyReusePeriodSeconds": "6000",
            "KmsMasterKeyId": "alias/orders",
            "MaximumMessageSize": "2048",
            "MessageRetentionPeriod": "60",
            "Policy": statement,
            "ReceiveMessageWaitTimeSeconds": "20",
            "RedriveAllowPolicy": allowed,
            "VisibilityTimeout": "0",
        }
        first = await attributes_at(caller, await create(caller, "orders", wanted))
        assert wanted.items() <= first.items()
        assert first["SqsManagedSseEnabled"] == "false"
        later = await change(caller, await create(caller, "bills"), **wanted)
        assert wanted.items() <= later.items()
        facts = await caller.state.facts("bills")
        assert (facts.max_message_bytes, facts.config.visibility_timeout_ms) == (2048, 0)

        emptied = await change(caller, "bills", Policy="", RedriveAllowPolicy="", KmsMasterKeyId="")
        gone = {"Policy", "RedriveAllowPolicy", "KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds"}
        assert not gone & emptied.keys()
        assert emptied["SqsManagedSseEnabled"] == "false"
        assert (await change(caller, "bills", SqsManagedSseEnabled="True"))[
            "SqsManagedSseEnabled"
        ] == "true"


async def test_changes_of_a_queue_have_a_time(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        url = await create(caller, "orders")
        (queue,) = await caller.client.admin.describe_queues(["orders"])
        assert queue.modified_at_ms is None
        found = await change(caller, url, DelaySeconds="1")
        (queue,) = await caller.client.admin.describe_queues(["orders"])
        assert queue.modified_at_ms is not None
        assert queue.modified_at_ms >= queue.created_at_ms
        assert found["LastModifiedTimestamp"] == str(queue.modified_at_ms // 1000)
        later = replace(queue, modified_at_ms=queue.created_at_ms + 60_000)
        times = attributes_of(later, caller.scope)
        assert int(times["LastModifiedTimestamp"]) == int(times["CreatedTimestamp"]) + 60


async def test_attributes_of_fifo_queues(tmp_path: Path) -> None:
    fast = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
    async with open_caller(tmp_path) as caller:
        given = {"FifoQueue": "True", "ContentBasedDeduplication": "True", **fast}
        url = await create(caller, "fast.fifo", given)
        assert await create(caller, "fast.fifo", given) == url
        found = await attributes_at(caller, url)
        assert {**fast, "ContentBasedDeduplication": "true"}.items() <= found.items()
        facts = await caller.state.facts("fast.fifo")
        assert facts.has_group_scope
        assert facts.config.content_based_deduplication

        # A scope is shown as it was set last; ids are compared as the queue was created.
        url = await create(caller, "slow.fifo", {"FifoQueue": "true"})
        changed = await change(caller, url, **fast, FifoQueue="true")
        assert fast.items() <= changed.items()
        assert not (await caller.state.facts("slow.fifo")).has_group_scope
        with pytest.raises(SqsError, match="only when the value for DeduplicationScope") as caught:
            await change(caller, url, DeduplicationScope="queue")
        assert caught.value.shape is INVALID_ATTRIBUTE_VALUE


@pytest.mark.difference(
    "Dead letters",
    cloud="Two queues may be the dead-letter queues of each other.",
    here="`SetQueueAttributes` refuses the policy that closes the circle.",
    why="A message that no program can process would move for ever.",
)
async def test_a_dead_letter_queue_exists_has_the_kind_and_allows_it(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        url = await create(caller, "orders")
        dead = await create(caller, "dead")
        await create(caller, "dead.fifo", {"FifoQueue": "true"})
        shown = json.dumps(json.loads(policy(caller, "dead")), separators=(",", ":"))
        assert (await change(caller, url, RedrivePolicy=policy(caller, "dead")))[
            "RedrivePolicy"
        ] == shown
        assert "RedrivePolicy" not in await change(caller, url, RedrivePolicy="")

        denied = {"redrivePermission": "byQueue", "sourceQueueArns": [caller.scope.arn_of("bills")]}
        await change(caller, dead, RedriveAllowPolicy=json.dumps(denied))
        for name, text in (
            ("missing", "Dead letter target does not exist."),
            ("dead.fifo", "Dead-letter queue must be same type of queue as the source."),
            ("dead", "denies this source"),
        ):
            given = {"RedrivePolicy": policy(caller, name)}
            for attempt in (change(caller, url, **given), create(caller, "third", given)):
                with pytest.raises(SqsError, match=text) as caught:
                    await attempt
                assert caught.value.shape is INVALID_PARAMETER_VALUE
        bills = await create(caller, "bills", {"RedrivePolicy": policy(caller, "dead")})
        with pytest.raises(SqsError, match="would come back"):
            await change(caller, dead, RedrivePolicy=policy(caller, "bills"))
        assert "RedrivePolicy" in await attributes_at(caller, bills)


@pytest.mark.difference(
    "Dead letters",
    cloud="A queue may be its own dead-letter queue.",
    here="The policy is stored and returned. Its messages stay at their places, and are received"
    " again.",
    why="A move would append the record to the topic for ever.",
)
async def test_a_queue_may_name_itself_as_its_dead_letter_queue(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        url = await create(caller, "orders")
        found = await change(caller, url, RedrivePolicy=policy(caller, "orders"))
        assert json.loads(found["RedrivePolicy"])["maxReceiveCount"] == 3
        sources = await list_dead_letter_source_queues(caller, ListDeadLetterSourceQueuesCall(url))
        assert sources.queue_urls == [url]
        await create(caller, "dead")
        found = await change(caller, url, RedrivePolicy=policy(caller, "dead", 4))
        assert json.loads(found["RedrivePolicy"])["maxReceiveCount"] == 4
        assert "RedrivePolicy" not in await change(caller, url, RedrivePolicy="")


async def test_numbers_of_messages_are_never_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_caller(tmp_path) as caller:
        url = await create(caller, "orders")
        monkeypatch.setattr(queue_counts, "_PATIENCE_S", 0.0)
        for name in ("All", "ApproximateNumberOfMessagesDelayed"):
            with pytest.raises(SqsError, match="could not be counted") as caught:
                await get_queue_attributes(caller, GetQueueAttributesCall(url, [name]))
            assert caught.value.shape is SERVICE_UNAVAILABLE
        found = await get_queue_attributes(caller, GetQueueAttributesCall(url, ["DelaySeconds"]))
        assert found.attributes == {"DelaySeconds": "0"}


async def test_a_new_wait_time_is_that_of_the_next_receive(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        url = await create(caller, "orders")
        assert (await receive_message(caller, ReceiveMessageCall(url))).messages is None
        await change(caller, url, ReceiveMessageWaitTimeSeconds="20")
        bodies: list[str] = []

        async def receive() -> None:
            found = await receive_message(caller, ReceiveMessageCall(url))
            bodies.extend(message.body for message in found.messages or [])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked(0.1)
            await send_message(caller, SendMessageCall(url, "hello"))
        assert bodies == ["hello"]


async def test_requests_name_attributes(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        url = await create(caller, "orders")
        found = await get_queue_attributes(
            caller, GetQueueAttributesCall(url, ["VisibilityTimeout", "Policy", "FifoQueue"])
        )
        assert found.attributes == {"VisibilityTimeout": "30"}
        for names in (None, [], ["Policy"]):
            call = GetQueueAttributesCall(url, names)
            assert (await get_queue_attributes(caller, call)).attributes is None
        for empty in (SetQueueAttributesCall(url), SetQueueAttributesCall(url, {})):
            with pytest.raises(SqsError) as caught:
                await set_queue_attributes(caller, empty)
            assert caught.value.shape is MISSING_PARAMETER
