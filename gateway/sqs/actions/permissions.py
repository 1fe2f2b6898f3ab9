"""Actions on the policy of a queue, which the front stores and returns, without effect.

Shell: they ask brokers. Grants of tidelog decide what a user may do.
"""

import json
import re
from typing import Any, Final

from tidelog.gateway.sqs.actions.described import described, relabel
from tidelog.gateway.sqs.attributes import OWN_LABELS, STATEMENTS_MAX, check_policy
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.names import is_account
from tidelog.gateway.sqs.protocol.errors import (
    OVER_LIMIT,
    SqsError,
    invalid_value,
    missing_parameter,
)
from tidelog.gateway.sqs.protocol.replies import DONE, SqsReply
from tidelog.gateway.sqs.protocol.requests import AddPermissionCall, RemovePermissionCall

ACTIONS_MAX: Final = 7
"""Maximum actions of one statement."""
POLICY: Final = f"{OWN_LABELS}Policy"

_LABEL: Final = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)
_SHARED: Final = {
    "*",
    "ChangeMessageVisibility",
    "DeleteMessage",
    "GetQueueAttributes",
    "GetQueueUrl",
    "ListDeadLetterSourceQueues",
    "PurgeQueue",
    "ReceiveMessage",
    "SendMessage",
}
"""Actions that a permission may name."""
_OWNERS: Final = {
    "AddPermission",
    "CancelMessageMoveTask",
    "CreateQueue",
    "DeleteQueue",
    "ListMessageMoveTasks",
    "ListQueues",
    "ListQueueTags",
    "RemovePermission",
    "SetQueueAttributes",
    "StartMessageMoveTask",
    "TagQueue",
    "UntagQueue",
}
"""Actions that only the owner of a queue may use."""


async def add_permission(caller: Caller, call: AddPermissionCall) -> SqsReply:
    """Add a statement to the policy of a queue.

    Raises:
        SqsError: There is no such queue, a parameter is not legal, or the policy is full.
    """
    name = caller.scope.queue_at(call.queue_url)
    label, accounts, actions = _checked(call)
    queue = await described(caller, name)
    arn = caller.scope.arn_of_queue(name)
    policy = _policy(queue.labels, arn)
    statements: list[dict[str, Any]] = policy["Statement"]
    if any(each.get("Sid") == label for each in statements):
        raise invalid_value(label, "Label", "Already exists.")
    if len(statements) >= STATEMENTS_MAX:
        raise SqsError(
            OVER_LIMIT,
            f"{len(statements) + 1} statements were found in the submitted policy, max allowed is"
            f" {STATEMENTS_MAX}",
        )
    statements.append(
        {
            "Sid": label,
            "Effect": "Allow",
            "Principal": {"AWS": _one_or_all([f"arn:aws:iam::{each}:root" for each in accounts])},
            "Action": _one_or_all([f"SQS:{each}" for each in actions]),
            "Resource": arn,
        }
    )
    text = json.dumps(policy, separators=(",", ":"))
    check_policy(text)
    await relabel(caller, name, {POLICY: text})
    return DONE


def _checked(call: AddPermissionCall) -> tuple[str, list[str], list[str]]:
    """Return label, accounts and actions of a permission.

    Raises:
        SqsError: One of them is missing or not legal.
    """
    label, accounts, actions = call.label, call.aws_account_ids or [], call.actions or []
    if not label:
        raise missing_parameter("Label")
    if not _LABEL.fullmatch(label):
        raise invalid_value(
            label,
            "Label",
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length",
        )
    if not actions:
        raise missing_parameter("Actions")
    if not accounts or not all(map(is_account, accounts)):
        raise invalid_value(f"[{', '.join(accounts)}]", "PrincipalId", "Unable to verify.")
    if len(actions) > ACTIONS_MAX:
        raise SqsError(
            OVER_LIMIT, f"{len(actions)} Actions were found, maximum allowed is {ACTIONS_MAX}."
        )
    for action in actions:
        if action in _OWNERS:
            raise invalid_value(
                f"SQS:{action}",
                "ActionName",
                "Only the queue owner is allowed to invoke this action.",
            )
        if action not in _SHARED:
            raise invalid_value(
                f"SQS:{action}",
                "ActionName",
                "Please refer to the appropriate WSDL for a list of valid actions.",
            )
    return label, list(dict.fromkeys(accounts)), list(dict.fromkeys(actions))


async def remove_permission(caller: Caller, call: RemovePermissionCall) -> SqsReply:
    """Remove a statement from the policy of a queue, and the policy with its last statement.

    Raises:
        SqsError: There is no such queue or statement.
    """
    name = caller.scope.queue_at(call.queue_url)
    if not call.label:
        raise missing_parameter("Label")
    queue = await described(caller, name)
    if POLICY not in queue.labels:
        raise invalid_value(call.label, "Label", "can't find label.")
    policy = _policy(queue.labels, caller.scope.arn_of_queue(name))
    statements: list[dict[str, Any]] = policy["Statement"]
    left = [each for each in statements if each.get("Sid") != call.label]
    if len(left) == len(statements):
        raise invalid_value(call.label, "Label", "can't find label on existing policy.")
    if left:
        text = json.dumps({**policy, "Statement": left}, separators=(",", ":"))
        await relabel(caller, name, {POLICY: text})
    else:
        await relabel(caller, name, {}, removed=[POLICY])
    return DONE


def _policy(labels: dict[str, str], arn: str) -> dict[str, Any]:
    """Return the policy of a queue with a list of statements; a new one if it has none."""
    text = labels.get(POLICY)
    if text is None:
        return {"Version": "2008-10-17", "Id": f"{arn}/SQSDefaultPolicy", "Statement": []}
    policy: dict[str, Any] = json.loads(text)
    statements = policy["Statement"]
    return {**policy, "Statement": statements if isinstance(statements, list) else [statements]}


def _one_or_all(values: list[str]) -> str | list[str]:
    """Return the only value, or a list of several, as the vendor writes policies."""
    return values[0] if len(values) == 1 else values
