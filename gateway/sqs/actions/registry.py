"""Table of the functions of the actions."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from tidelog.gateway.sqs.actions.move_tasks import (
    cancel_message_move_task,
    list_message_move_tasks,
    start_message_move_task,
)
from tidelog.gateway.sqs.actions.permissions import add_permission, remove_permission
from tidelog.gateway.sqs.actions.queue_attributes import get_queue_attributes, set_queue_attributes
from tidelog.gateway.sqs.actions.queue_tags import list_queue_tags, tag_queue, untag_queue
from tidelog.gateway.sqs.actions.queues import (
    create_queue,
    delete_queue,
    get_queue_url,
    list_dead_letter_source_queues,
    list_queues,
    purge_queue,
)
from tidelog.gateway.sqs.actions.receive import receive_message
from tidelog.gateway.sqs.actions.send import send_message, send_message_batch
from tidelog.gateway.sqs.actions.settle import (
    change_message_visibility,
    change_message_visibility_batch,
    delete_message,
    delete_message_batch,
)
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.protocol.replies import SqsReply

Action = Callable[[Caller, Any], Awaitable[SqsReply]]
"""Function of an action; its request has the type that `protocol.codec.CALLS` names."""

ACTIONS: Final[Mapping[str, Action]] = {
    "AddPermission": add_permission,
    "CancelMessageMoveTask": cancel_message_move_task,
    "ChangeMessageVisibility": change_message_visibility,
    "ChangeMessageVisibilityBatch": change_message_visibility_batch,
    "CreateQueue": create_queue,
    "DeleteMessage": delete_message,
    "DeleteMessageBatch": delete_message_batch,
    "DeleteQueue": delete_queue,
    "GetQueueAttributes": get_queue_attributes,
    "GetQueueUrl": get_queue_url,
    "ListDeadLetterSourceQueues": list_dead_letter_source_queues,
    "ListMessageMoveTasks": list_message_move_tasks,
    "ListQueueTags": list_queue_tags,
    "ListQueues": list_queues,
    "PurgeQueue": purge_queue,
    "ReceiveMessage": receive_message,
    "RemovePermission": remove_permission,
    "SendMessage": send_message,
    "SendMessageBatch": send_message_batch,
    "SetQueueAttributes": set_queue_attributes,
    "StartMessageMoveTask": start_message_move_task,
    "TagQueue": tag_queue,
    "UntagQueue": untag_queue,
}
"""Function of each action, by its name."""
