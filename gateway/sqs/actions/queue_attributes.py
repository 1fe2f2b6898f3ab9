"""Actions on the attributes of queues.

Shell: they ask brokers.
"""

from tidelog.client.admin.queue_counts import DescribedQueue
from tidelog.gateway.sqs.actions.described import described
from tidelog.gateway.sqs.actions.queues import check_redrive
from tidelog.gateway.sqs.attributes import (
    ALL,
    AttributeChange,
    attributes_of,
    change_of,
    check_asked,
    needs_counts,
)
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.protocol.errors import (
    INVALID_ATTRIBUTE_VALUE,
    SqsError,
    missing_parameter,
    queue_does_not_exist,
)
from tidelog.gateway.sqs.protocol.replies import DONE, QueueAttributes, SqsReply
from tidelog.gateway.sqs.protocol.requests import GetQueueAttributesCall, SetQueueAttributesCall
from tidelog.wire.config.queue_config import queue_config
from tidelog.wire.errors import InvalidConfigError, UnknownQueueError


async def get_queue_attributes(caller: Caller, call: GetQueueAttributesCall) -> QueueAttributes:
    """Return attributes of a queue; none if the request names none.

    Raises:
        SqsError: There is no such queue, or an attribute is unknown.
    """
    names = call.attribute_names or []
    name = caller.scope.queue_at(call.queue_url)
    check_asked(names)
    queue = await described(caller, name, with_counts=needs_counts(names))
    attributes = attributes_of(queue, caller.scope)
    if ALL not in names:
        attributes = {name: attributes[name] for name in names if name in attributes}
    return QueueAttributes(attributes or None)


async def set_queue_attributes(caller: Caller, call: SetQueueAttributesCall) -> SqsReply:
    """Set attributes of a queue, all or none; the change is in force when this returns.

    Raises:
        SqsError: There is no such queue, or an attribute is not legal.
    """
    name = caller.scope.queue_at(call.queue_url)
    if not call.attributes:
        raise missing_parameter("Attributes")
    queue = await described(caller, name)
    change = change_of(
        call.attributes,
        caller.scope,
        is_fifo=queue.is_fifo,
        current=attributes_of(queue, caller.scope),
    )
    await check_redrive(caller, name, change, is_fifo=queue.is_fifo)
    await apply(caller, queue, change)
    return DONE


async def apply(caller: Caller, queue: DescribedQueue, change: AttributeChange) -> None:
    """Change a queue.

    Raises:
        SqsError: It was deleted meanwhile, or the cluster refuses the change.
    """
    if change.scope is not None:
        # The cloud shows a later scope too, and goes on with the first: recorded, undocumented.
        change.store("DeduplicationScope", change.scope)
    try:
        await _keep_long_enough(caller, queue, change)
        await caller.client.admin.alter_queue(
            queue.name,
            set=change.settings,
            set_labels=change.labels,
            remove_labels=[each for each in change.removed if each not in change.labels],
        )
    except UnknownQueueError:
        raise queue_does_not_exist() from None
    except InvalidConfigError as error:
        raise SqsError(INVALID_ATTRIBUTE_VALUE, str(error)) from error
    finally:
        caller.state.change(queue.name)


async def _keep_long_enough(caller: Caller, queue: DescribedQueue, change: AttributeChange) -> None:
    """Let the topic keep records at least as long as its queue will keep messages."""
    config = queue_config({**queue.config, **change.settings}, is_fifo=queue.is_fifo)
    kept_ms = queue.topic_retention_ms
    if kept_ms is None or config.retention_ms is None:
        return
    wanted_ms = config.retention_ms + config.delivery_delay_ms
    if wanted_ms > kept_ms:
        await caller.client.admin.alter_topic(queue.topic, set={"retention_ms": wanted_ms})
