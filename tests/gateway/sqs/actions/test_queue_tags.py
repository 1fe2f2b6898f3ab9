"""Actions on the tags of queues."""

from pathlib import Path

import pytest

from tests.gateway.sqs.actions.test_queues import create
from tests.gateway.sqs.callers import open_caller
from tidelog.gateway.sqs.actions.queue_attributes import set_queue_attributes
from tidelog.gateway.sqs.actions.queue_tags import list_queue_tags, tag_queue, untag_queue
from tidelog.gateway.sqs.actions.queues import create_queue
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.protocol.errors import (
    INVALID_PARAMETER_VALUE,
    MISSING_PARAMETER,
    QUEUE_DOES_NOT_EXIST,
    SqsError,
)
from tidelog.gateway.sqs.protocol.requests import (
    CreateQueueCall,
    ListQueueTagsCall,
    SetQueueAttributesCall,
    TagQueueCall,
    UntagQueueCall,
)


async def tags(caller: Caller, url: str) -> dict[str, str] | None:
    return (await list_queue_tags(caller, ListQueueTagsCall(url))).tags


async def test_tags_are_the_labels_of_a_queue(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        url = await create(caller, "orders", None, team="billing", Team="x")
        assert await tags(caller, url) == {"team": "billing", "Team": "x"}
        await tag_queue(caller, TagQueueCall(url, {"team": "sales", "empty": ""}))
        (queue,) = await caller.client.admin.describe_queues(["orders"])
        assert {"team": "sales", "Team": "x", "empty": ""}.items() <= queue.labels.items()
        await untag_queue(caller, UntagQueueCall(url, ["Team", "missing", "empty"]))
        assert await tags(caller, url) == {"team": "sales"}
        await set_queue_attributes(caller, SetQueueAttributesCall(url, {"KmsMasterKeyId": "k"}))
        await untag_queue(caller, UntagQueueCall(url, ["team", "tidelog.sqs.KmsMasterKeyId"]))
        assert await tags(caller, url) is None
        (queue,) = await caller.client.admin.describe_queues(["orders"])
        assert queue.labels["tidelog.sqs.KmsMasterKeyId"] == "k"


@pytest.mark.difference(
    "Queues",
    cloud="50 tags of the full length are possible in any script.",
    here="Tags and the attributes without a setting have at most 65,536 bytes in UTF-8 together:"
    " 50 full tags of two bytes a character, and a policy. Keys do not begin with `tidelog.sqs.`.",
    why="They are labels, in the metadata that each broker has in memory.",
)
async def test_tags_have_limits(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        # The longest tags there are, of letters that take two bytes each, and a policy beside them.
        longest = {f"{number:02}".ljust(128, "ö"): "ü" * 256 for number in range(50)}
        policy = '{"Id":"' + "x" * 8000 + '","Statement":[{"Effect":"Allow"}]}'
        url = await create(caller, "orders", {"Policy": policy}, **longest)
        assert await tags(caller, url) == longest
        await tag_queue(caller, TagQueueCall(url, {next(iter(longest)): "changed"}))

        for given, text in (
            ({"one more": ""}, "Too many tags added for queue orders."),
            ({"": "x"}, "Tag keys must be between 1 and 128 characters in length."),
            ({"x" * 129: "x"}, "Tag keys must be between 1 and 128 characters in length."),
            ({"x": "x" * 257}, "Tag values must be between 0 and 256 characters in length."),
            ({"aws:x": "x"}, "Tag keys that begin with aws: are reserved for system use."),
            ({"tidelog.sqs.Policy": "x"}, "Tag keys that begin with tidelog.sqs. are reserved."),
        ):
            if "one more" not in given:
                with pytest.raises(SqsError) as caught:
                    await create_queue(caller, CreateQueueCall("bills", None, given))
                assert caught.value.message == text
                await untag_queue(caller, UntagQueueCall(url, list(longest)[-1:]))
            with pytest.raises(SqsError) as caught:
                await tag_queue(caller, TagQueueCall(url, given))
            assert caught.value.message == text
            assert caught.value.shape is INVALID_PARAMETER_VALUE


async def test_tags_are_named(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        url = await create(caller, "orders")
        for call in (
            tag_queue(caller, TagQueueCall(url)),
            tag_queue(caller, TagQueueCall(url, {})),
            untag_queue(caller, UntagQueueCall(url, [])),
        ):
            with pytest.raises(SqsError) as caught:
                await call
            assert caught.value.shape is MISSING_PARAMETER
        missing = url.replace("orders", "missing")
        for other in (
            tag_queue(caller, TagQueueCall(missing, {"a": "b"})),
            untag_queue(caller, UntagQueueCall(missing, ["a"])),
            list_queue_tags(caller, ListQueueTagsCall(missing)),
        ):
            with pytest.raises(SqsError) as caught:
                await other
            assert caught.value.shape is QUEUE_DOES_NOT_EXIST
