"""The functions of the actions, by name."""

from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from typing import Any, Final

from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.protocol.replies import SqsReply

Action = Callable[[Caller, Any], Awaitable[SqsReply]]
"""Function of an action; its request has the type that `protocol.codec.CALLS` names."""

_MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "move_tasks": ("CancelMessageMoveTask", "ListMessageMoveTasks", "StartMessageMoveTask"),
    "permissions": ("AddPermission", "RemovePermission"),
    "queue_attributes": ("GetQueueAttributes", "SetQueueAttributes"),
    "queue_tags": ("ListQueueTags", "TagQueue", "UntagQueue"),
    "queues": (
        "CreateQueue",
        "DeleteQueue",
        "GetQueueUrl",
        "ListDeadLetterSourceQueues",
        "ListQueues",
        "PurgeQueue",
    ),
    "receive": ("ReceiveMessage",),
    "send": ("SendMessage", "SendMessageBatch"),
    "settle": (
        "ChangeMessageVisibility",
        "ChangeMessageVisibilityBatch",
        "DeleteMessage",
        "DeleteMessageBatch",
    ),
}


def _snake_case(name: str) -> str:
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in name)[1:]


def _found() -> dict[str, Action]:
    """Return the functions of all actions that exist."""
    found: dict[str, Action] = {}
    for module, names in _MODULES.items():
        try:
            loaded = import_module(f"tidelog.gateway.sqs.actions.{module}")
        except ModuleNotFoundError:
            continue
        for name in names:
            action = getattr(loaded, _snake_case(name), None)
            if action is not None:
                found[name] = action
    return found


ACTIONS: Final[Mapping[str, Action]] = _found()
"""Function of each action, by its name, such as `SendMessage`."""
