"""Actions on the policy of a queue."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.sqs.actions.test_queues import attributes_at, create
from tests.gateway.sqs.callers import open_caller
from tidelog.gateway.sqs.actions.permissions import add_permission, remove_permission
from tidelog.gateway.sqs.actions.queue_attributes import set_queue_attributes
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.protocol.errors import (
    INVALID_PARAMETER_VALUE,
    MISSING_PARAMETER,
    OVER_LIMIT,
    ErrorShape,
    SqsError,
)
from tidelog.gateway.sqs.protocol.requests import (
    AddPermissionCall,
    RemovePermissionCall,
    SetQueueAttributesCall,
)

ONE, OTHER = "111122223333", "444455556666"


async def policy(caller: Caller, url: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await attributes_at(caller, url))["Policy"])
    return found


async def test_permissions_make_a_policy(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        url = await create(caller, "orders")
        arn = caller.scope.arn_of("orders")
        actions = ["SendMessage", "ReceiveMessage"]
        await add_permission(caller, AddPermissionCall(url, "one", [ONE], ["SendMessage"]))
        await add_permission(caller, AddPermissionCall(url, "two", [ONE, OTHER], actions))
        assert await policy(caller, url) == {
            "Version": "2008-10-17",
            "Id": f"{arn}/SQSDefaultPolicy",
            "Statement": [
                {
                    "Sid": "one",
                    "Effect": "Allow",
                    "Principal": {"AWS": f"arn:aws:iam::{ONE}:root"},
                    "Action": "SQS:SendMessage",
                    "Resource": arn,
                },
                {
                    "Sid": "two",
                    "Effect": "Allow",
                    "Principal": {"AWS": [f"arn:aws:iam::{each}:root" for each in (ONE, OTHER)]},
                    "Action": [f"SQS:{each}" for each in actions],
                    "Resource": arn,
                },
            ],
        }
        with pytest.raises(SqsError) as caught:
            await add_permission(caller, AddPermissionCall(url, "one", [OTHER], actions))
        assert caught.value.message == (
            "Value one for parameter Label is invalid. Reason: Already exists."
        )
        await remove_permission(caller, RemovePermissionCall(url, "one"))
        assert [each["Sid"] for each in (await policy(caller, url))["Statement"]] == ["two"]
        with pytest.raises(SqsError, match="can't find label on existing policy"):
            await remove_permission(caller, RemovePermissionCall(url, "one"))
        await remove_permission(caller, RemovePermissionCall(url, "two"))
        assert "Policy" not in await attributes_at(caller, url)
        with pytest.raises(SqsError) as caught:
            await remove_permission(caller, RemovePermissionCall(url, "two"))
        assert caught.value.message == (
            "Value two for parameter Label is invalid. Reason: can't find label."
        )


async def test_a_permission_joins_a_policy_of_the_user(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        url = await create(caller, "orders")
        own = {"Version": "2012-10-17", "Statement": {"Sid": "own", "Effect": "Deny"}}
        call = SetQueueAttributesCall(url, {"Policy": json.dumps(own)})
        await set_queue_attributes(caller, call)
        await add_permission(caller, AddPermissionCall(url, "one", [ONE], ["*"]))
        joined = await policy(caller, url)
        assert joined["Version"] == "2012-10-17"
        assert [each["Sid"] for each in joined["Statement"]] == ["own", "one"]
        for number in range(18):
            await add_permission(caller, AddPermissionCall(url, f"p{number}", [ONE], ["*"]))
        with pytest.raises(SqsError, match="21 statements") as caught:
            await add_permission(caller, AddPermissionCall(url, "last", [ONE], ["*"]))
        assert caught.value.shape is OVER_LIMIT


async def test_permissions_are_checked(tmp_path: Path) -> None:
    action = ["SendMessage"]
    cases: list[tuple[AddPermissionCall, ErrorShape, str]] = [
        (AddPermissionCall("orders", None, [ONE], action), MISSING_PARAMETER, "parameter Label."),
        (AddPermissionCall("orders", "a b", [ONE], action), INVALID_PARAMETER_VALUE, "1 to 80"),
        (AddPermissionCall("orders", "a", [ONE], []), MISSING_PARAMETER, "parameter Actions."),
        (
            AddPermissionCall("orders", "a", [], action),
            INVALID_PARAMETER_VALUE,
            "Value [] for parameter PrincipalId is invalid. Reason: Unable to verify.",
        ),
        (AddPermissionCall("orders", "a", ["1"], action), INVALID_PARAMETER_VALUE, "Value [1] for"),
        (
            AddPermissionCall("orders", "a", [ONE], action * 8),
            OVER_LIMIT,
            "8 Actions were found, maximum allowed is 7.",
        ),
        (
            AddPermissionCall("orders", "a", [ONE], ["AddPermission"]),
            INVALID_PARAMETER_VALUE,
            "Reason: Only the queue owner is allowed to invoke this action.",
        ),
        (
            AddPermissionCall("orders", "a", [ONE], ["Fly"]),
            INVALID_PARAMETER_VALUE,
            "Value SQS:Fly for parameter ActionName is invalid. Reason: Please refer to the",
        ),
    ]
    async with open_caller(tmp_path) as caller:
        await create(caller, "orders")
        for call, shape, text in cases:
            with pytest.raises(SqsError) as caught:
                await add_permission(caller, call)
            assert caught.value.shape is shape
            assert text in caught.value.message
