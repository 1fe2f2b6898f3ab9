"""Actions that create, find, list, purge and delete queues."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.gateway.sqs.callers import open_caller
from tidelog.client.admin.admin import Admin
from tidelog.gateway.sqs.actions.queue_attributes import (
    get_queue_attributes,
    set_queue_attributes,
)
from tidelog.gateway.sqs.actions.queues import (
    create_queue,
    delete_queue,
    get_queue_url,
    list_dead_letter_source_queues,
    list_queues,
    purge_queue,
)
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.protocol.errors import (
    INVALID_ATTRIBUTE_NAME,
    INVALID_PARAMETER_VALUE,
    MISSING_PARAMETER,
    QUEUE_DOES_NOT_EXIST,
    QUEUE_NAME_EXISTS,
    ErrorShape,
    SqsError,
)
from tidelog.gateway.sqs.protocol.requests import (
    CreateQueueCall,
    DeleteQueueCall,
    GetQueueAttributesCall,
    GetQueueUrlCall,
    ListDeadLetterSourceQueuesCall,
    ListQueuesCall,
    PurgeQueueCall,
    SetQueueAttributesCall,
)
from tidelog.gateway.sqs.settings import FrontSettings


async def create(
    caller: Caller, name: str, attributes: Mapping[str, str] | None = None, **tags: str
) -> str:
    call = CreateQueueCall(name, None if attributes is None else dict(attributes), tags or None)
    url = (await create_queue(caller, call)).queue_url
    assert url is not None
    return url


async def attributes_at(caller: Caller, url: str) -> dict[str, str]:
    found = await get_queue_attributes(caller, GetQueueAttributesCall(url, ["All"]))
    assert found.attributes is not None
    return found.attributes


async def names_in_pages(caller: Caller, size: int) -> list[str]:
    urls: list[str] = []
    page = await list_queues(caller, ListQueuesCall(None, size))
    while page.next_token is not None:
        assert page.queue_urls is not None
        assert len(page.queue_urls) == size
        urls += page.queue_urls
        page = await list_queues(caller, ListQueuesCall(None, size, page.next_token))
    return [url.rpartition("/")[2] for url in [*urls, *(page.queue_urls or [])]]


async def test_a_queue_is_created_found_and_deleted(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        url = await create(caller, "orders")
        assert url == "http://127.0.0.1:9324/000000000000/orders"
        assert (await get_queue_url(caller, GetQueueUrlCall("orders"))).queue_url == url
        await delete_queue(caller, DeleteQueueCall(url))
        for call in (
            get_queue_url(caller, GetQueueUrlCall("orders")),
            get_queue_attributes(caller, GetQueueAttributesCall(url, ["All"])),
            delete_queue(caller, DeleteQueueCall(url)),
            purge_queue(caller, PurgeQueueCall(url)),
        ):
            with pytest.raises(SqsError, match="The specified queue does not exist") as caught:
                await call
            assert caught.value.shape is QUEUE_DOES_NOT_EXIST
        assert await caller.client.admin.list_topics() == []


async def test_the_url_of_a_queue_in_use_costs_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_caller(tmp_path) as caller:
        url = await create(caller, "orders")
        call = GetQueueUrlCall("orders")
        assert (await get_queue_url(caller, call)).queue_url == url
        with monkeypatch.context() as patch:
            patch.delattr(Admin, "describe_queues")  # A question would fail.
            assert (await get_queue_url(caller, call)).queue_url == url
        await delete_queue(caller, DeleteQueueCall(url))
        with pytest.raises(SqsError):
            await get_queue_url(caller, call)
        # That it is missing is not remembered.
        await caller.client.admin.create_queue("orders")
        assert (await get_queue_url(caller, call)).queue_url == url


async def test_names_are_checked(tmp_path: Path) -> None:
    cases: list[tuple[str | None, dict[str, str] | None, ErrorShape, str]] = [
        (None, None, MISSING_PARAMETER, "must contain the parameter QueueName."),
        ("a.b", None, INVALID_PARAMETER_VALUE, "Can only include alphanumeric"),
        ("q" * 81, None, INVALID_PARAMETER_VALUE, "1 to 80 in length"),
        ("a.fifo", None, INVALID_PARAMETER_VALUE, "Can only include alphanumeric"),
        ("a", {"FifoQueue": "true"}, INVALID_PARAMETER_VALUE, "must end with .fifo suffix"),
        ("a", {"FifoQueue": "false"}, INVALID_ATTRIBUTE_NAME, "Unknown Attribute FifoQueue."),
    ]
    async with open_caller(tmp_path) as caller:
        for name, attributes, shape, text in cases:
            with pytest.raises(SqsError, match=text) as caught:
                await create_queue(caller, CreateQueueCall(name, attributes))
            assert caught.value.shape is shape


async def test_creating_a_queue_again_compares_what_is_given(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await create(caller, "dead")
        policy = json.dumps(
            {"deadLetterTargetArn": caller.scope.arn_of("dead"), "maxReceiveCount": "3"}
        )
        asked = {"VisibilityTimeout": "40", "RedrivePolicy": policy, "DelaySeconds": "5"}
        url = await create(caller, "orders", asked)
        assert await create(caller, "orders", asked) == url
        assert await create(caller, "orders", {"DelaySeconds": "005"}) == url
        assert await create(caller, "orders") == url
        for name, value in (
            ("DelaySeconds", "6"),
            ("MaximumMessageSize", "1024"),
            ("RedrivePolicy", policy.replace("3", "4")),
        ):
            with pytest.raises(SqsError, match=f"different value for attribute {name}") as caught:
                await create(caller, "orders", {**asked, name: value})
            assert caught.value.shape is QUEUE_NAME_EXISTS


async def test_queues_of_the_account_and_region_are_listed(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        assert (await list_queues(caller, ListQueuesCall())).queue_urls is None
        admin = caller.client.admin
        others = ("111122223333.a", "eu-west-1.z", "eu-west-1.a", "eu-west-1.b.fifo", "us-east-1.a")
        for native in (*others, "eu-west-1.x.a", "eu-west-1.x.b", "eu-west-1.x.z"):
            await admin.create_queue(native)
        for name in ("a", "eu-west-1", "b"):
            await create(caller, name)
        await create(caller, "eu-west-1.fifo", {"FifoQueue": "true"})
        base = "http://127.0.0.1:9324/000000000000/"
        found = await list_queues(caller, ListQueuesCall())
        assert found.queue_urls == [base + n for n in ("a", "b", "eu-west-1", "eu-west-1.fifo")]
        assert found.next_token is None
        assert await names_in_pages(caller, 1) == ["a", "b", "eu-west-1", "eu-west-1.fifo"]
        found = await list_queues(caller, ListQueuesCall("eu"))
        assert found.queue_urls == [base + n for n in ("eu-west-1", "eu-west-1.fifo")]
        abroad = caller._replace(scope=caller.scope._replace(region="eu-west-1"))
        assert await names_in_pages(abroad, 1) == ["a", "b.fifo", "z"]
        found = await list_queues(abroad, ListQueuesCall())
        assert found.queue_urls == [base + n for n in ("a", "b.fifo", "z")]


async def test_lists_of_queues_have_pages(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        for name in ("a", "b", "c"):
            await create(caller, name)
        assert await names_in_pages(caller, 2) == ["a", "b", "c"]
        last = await list_queues(caller, ListQueuesCall(None, 3))
        assert last.next_token is None
        for call, text in (
            (ListQueuesCall(None, 0), "Value 0 for parameter MaxResults is invalid."),
            (ListQueuesCall(None, 1001), "Value 1001 for parameter MaxResults is invalid."),
            (ListQueuesCall(None, 2, "?"), "Invalid or expired next token."),
        ):
            with pytest.raises(SqsError) as caught:
                await list_queues(caller, call)
            assert caught.value.message.startswith(text)


@pytest.mark.difference(
    "Dead letters",
    cloud="A deleted dead-letter queue stays in the `RedrivePolicy` of its sources.",
    here="Its sources have no `RedrivePolicy` after that, and keep their messages.",
    why="A queue that does not exist takes no messages, and a later one of its name is another.",
)
async def test_sources_of_a_dead_letter_queue_are_listed_and_detached(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        dead = await create(caller, "dead")
        arn = (await attributes_at(caller, dead))["QueueArn"]
        policy = {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 3})}
        urls = [await create(caller, name, policy) for name in ("a", "b")]
        found = await list_dead_letter_source_queues(caller, ListDeadLetterSourceQueuesCall(dead))
        assert (found.queue_urls, found.next_token) == (urls, None)
        first = await list_dead_letter_source_queues(
            caller, ListDeadLetterSourceQueuesCall(dead, 1)
        )
        rest = await list_dead_letter_source_queues(
            caller, ListDeadLetterSourceQueuesCall(dead, 1, first.next_token)
        )
        assert [first.queue_urls, rest.queue_urls] == [urls[:1], urls[1:]]
        assert rest.next_token is None

        await delete_queue(caller, DeleteQueueCall(dead))
        assert "RedrivePolicy" not in await attributes_at(caller, urls[0])


async def test_a_purge_deletes_all_messages(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        url = await create(caller, "orders")
        queue = caller.client.queue("orders")
        await queue.send(b"1")
        await queue.send(b"2", delay=60)
        counted = await attributes_at(caller, url)
        assert counted["ApproximateNumberOfMessages"] == "1"
        assert counted["ApproximateNumberOfMessagesDelayed"] == "1"
        await purge_queue(caller, PurgeQueueCall(url))
        assert (await attributes_at(caller, url))["ApproximateNumberOfMessagesDelayed"] == "0"


async def test_queues_are_created_with_the_partitions_of_the_front(tmp_path: Path) -> None:
    fast = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
    async with open_caller(tmp_path, FrontSettings(partitions=3)) as caller:
        await caller.client.admin.create_topic("stream", 2)
        for name, attributes, count in (
            ("orders", None, 3),
            ("slow.fifo", {"FifoQueue": "true"}, 1),
            ("fast.fifo", {"FifoQueue": "true", **fast}, 3),
            ("stream", None, 2),
        ):
            await create(caller, name, attributes)
            assert (await caller.state.facts(name)).partition_count == count


@pytest.mark.difference(
    "Queues",
    cloud="A queue is deleted with its messages.",
    here="So it is, if `CreateQueue` made its topic and no other queue is on it. The records of"
    " other topics stay, and a new queue begins behind them.",
    why="A queue may be a view of a stream, which other programs read and write.",
)
async def test_records_of_a_stream_are_no_messages_and_outlive_the_queue(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        admin = caller.client.admin
        await admin.create_topic("orders")
        async with caller.client.producer() as producer:
            await producer.send("orders", b"before")
        url = await create(caller, "orders")
        assert (await attributes_at(caller, url))["ApproximateNumberOfMessages"] == "0"
        await delete_queue(caller, DeleteQueueCall(url))
        assert await admin.list_topics() == ["orders"]


async def test_a_topic_with_another_queue_outlives_the_queue(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        url = await create(caller, "orders")
        await caller.client.admin.create_queue("audit", topic="orders")
        await delete_queue(caller, DeleteQueueCall(url))
        assert await caller.client.admin.list_topics() == ["orders"]
        assert await caller.client.admin.list_queues() == ["audit"]


@pytest.mark.difference(
    "Queues",
    cloud="`MessageRetentionPeriod` is a property of the queue alone.",
    here="A longer one than that of the topic is also set for the topic, which then keeps records"
    " for streams as long. A shorter one leaves the topic as it is.",
    why="A queue delivers no message that the topic has deleted.",
)
async def test_a_longer_retention_is_also_that_of_the_topic(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        url = await create(caller, "orders")
        longest = {"MessageRetentionPeriod": "1209600", "DelaySeconds": "900"}
        await set_queue_attributes(caller, SetQueueAttributesCall(url, longest))
        found = await attributes_at(caller, url)
        assert {name: found[name] for name in longest} == longest
        (queue,) = await caller.client.admin.describe_queues(["orders"])
        assert queue.topic_retention_ms == (1_209_600 + 900) * 1000
        shortest = {"MessageRetentionPeriod": "60", "DelaySeconds": "0"}
        await set_queue_attributes(caller, SetQueueAttributesCall(url, shortest))
        assert (await attributes_at(caller, url))["MessageRetentionPeriod"] == "60"
        (queue,) = await caller.client.admin.describe_queues(["orders"])
        assert queue.topic_retention_ms == (1_209_600 + 900) * 1000


@pytest.mark.parametrize("name", ["orders", "orders.fifo"])
async def test_receives_of_new_queues_are_committed(tmp_path: Path, name: str) -> None:
    """Else messages would return before the end of their timeout when a leader dies."""
    async with open_caller(tmp_path) as caller:
        await create(caller, name, {"FifoQueue": "true"} if name.endswith(".fifo") else None)

        (queue,) = await caller.client.admin.describe_queues([name])

        assert queue.config["receive_acks"] == "all"
