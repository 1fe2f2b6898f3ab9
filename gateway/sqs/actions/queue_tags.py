"""Actions on the tags of queues, which are labels in tidelog.

Shell: they ask brokers.
"""

from collections.abc import Mapping
from typing import Final

from tidelog.client.admin.queue_counts import DescribedQueue
from tidelog.gateway.sqs.actions.described import described, relabel
from tidelog.gateway.sqs.attributes import OWN_LABELS
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.protocol.errors import (
    INVALID_PARAMETER_VALUE,
    SqsError,
    missing_parameter,
)
from tidelog.gateway.sqs.protocol.replies import DONE, QueueTags, SqsReply
from tidelog.gateway.sqs.protocol.requests import (
    ListQueueTagsCall,
    TagQueueCall,
    UntagQueueCall,
)

TAGS_MAX: Final = 50
KEY_LENGTH_MAX: Final = 128
VALUE_LENGTH_MAX: Final = 256


def check_tags(queue: str, tags: Mapping[str, str], others: int) -> None:
    """Check that a queue may have tags, beside a number of others.

    Raises:
        SqsError: They are too many or too long, or their names are reserved.
    """
    if len(tags) + others > TAGS_MAX:
        raise SqsError(INVALID_PARAMETER_VALUE, f"Too many tags added for queue {queue}.")
    for key, value in tags.items():
        if not 1 <= len(key) <= KEY_LENGTH_MAX:
            raise SqsError(
                INVALID_PARAMETER_VALUE, "Tag keys must be between 1 and 128 characters in length."
            )
        if len(value) > VALUE_LENGTH_MAX:
            raise SqsError(
                INVALID_PARAMETER_VALUE,
                "Tag values must be between 0 and 256 characters in length.",
            )
        if key.lower().startswith("aws:"):
            raise SqsError(
                INVALID_PARAMETER_VALUE,
                "Tag keys that begin with aws: are reserved for system use.",
            )
        if key.startswith(OWN_LABELS):
            raise SqsError(
                INVALID_PARAMETER_VALUE, f"Tag keys that begin with {OWN_LABELS} are reserved."
            )


async def tag_queue(caller: Caller, call: TagQueueCall) -> SqsReply:
    """Set tags of a queue; others stay.

    Raises:
        SqsError: There is no such queue, or a tag is not legal.
    """
    name = caller.scope.queue_at(call.queue_url)
    if not call.tags:
        raise missing_parameter("Tags")
    queue = await described(caller, name)
    check_tags(queue.name, call.tags, len(tags_of(queue).keys() - call.tags.keys()))
    await relabel(caller, name, call.tags)
    return DONE


async def untag_queue(caller: Caller, call: UntagQueueCall) -> SqsReply:
    """Remove tags of a queue; missing ones are no error.

    Raises:
        SqsError: There is no such queue.
    """
    name = caller.scope.queue_at(call.queue_url)
    if not call.tag_keys:
        raise missing_parameter("TagKeys")
    await described(caller, name)
    # Labels of the front are no tags, so nothing removes them.
    removed = [key for key in call.tag_keys if not key.startswith(OWN_LABELS)]
    await relabel(caller, name, {}, removed=list(dict.fromkeys(removed)))
    return DONE


async def list_queue_tags(caller: Caller, call: ListQueueTagsCall) -> QueueTags:
    """Return the tags of a queue.

    Raises:
        SqsError: There is no such queue.
    """
    queue = await described(caller, caller.scope.queue_at(call.queue_url))
    return QueueTags(tags_of(queue) or None)


def tags_of(queue: DescribedQueue) -> dict[str, str]:
    """Return the labels of a queue that are tags."""
    return {key: value for key, value in queue.labels.items() if not key.startswith(OWN_LABELS)}
