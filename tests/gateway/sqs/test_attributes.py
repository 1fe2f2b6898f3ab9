"""Attributes of queues: texts of SQS, settings and labels of tidelog."""

import json

import pytest

from tests.gateway.sqs.test_names import scope
from tidelog.gateway.sqs.attributes import (
    allows_source,
    change_of,
    check_asked,
    new_attributes,
    parse_redrive,
)
from tidelog.gateway.sqs.protocol.errors import (
    INVALID_ATTRIBUTE_NAME,
    INVALID_ATTRIBUTE_VALUE,
    INVALID_PARAMETER_VALUE,
    OVER_LIMIT,
    SqsError,
)

DEAD = "arn:aws:sqs:us-east-1:000000000000:dead"
STATEMENT = {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "*", "Principal": "*"}


def refused(attributes: dict[str, str], *, is_fifo: bool = False) -> SqsError:
    with pytest.raises(SqsError) as caught:
        change_of(attributes, scope(), is_fifo=is_fifo, current=new_attributes(is_fifo=is_fifo))
    return caught.value


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("DelaySeconds", 0, 900),
        ("KmsDataKeyReusePeriodSeconds", 60, 86_400),
        ("MaximumMessageSize", 1024, 1_048_576),
        ("MessageRetentionPeriod", 60, 1_209_600),
        ("ReceiveMessageWaitTimeSeconds", 0, 20),
        ("VisibilityTimeout", 0, 43_200),
    ],
)
def test_numbers_have_limits(name: str, low: int, high: int) -> None:
    for value in (low, high):
        change = change_of({name: str(value)}, scope(), is_fifo=False, current={})
        assert change.settings or change.labels
    for text in (str(low - 1), str(high + 1), "", "1.5", "x", " 60", "٦٠"):
        error = refused({name: text})
        assert error.shape is INVALID_ATTRIBUTE_VALUE
        assert error.message == f"Invalid value for the parameter {name}."


@pytest.mark.parametrize(
    ("attributes", "is_fifo", "text"),
    [
        ({"Foobar": "1"}, False, "Unknown Attribute Foobar."),
        ({"QueueArn": "1"}, True, "Unknown Attribute QueueArn."),
        ({"ApproximateNumberOfMessages": "1"}, True, "Unknown Attribute Approx"),
        ({"FifoQueue": "true"}, False, "Unknown Attribute FifoQueue."),
        ({"ContentBasedDeduplication": "false"}, False, "Unknown Attribute ContentBased"),
        (
            {"DeduplicationScope": "queue"},
            False,
            "You can specify the DeduplicationScope only when FifoQueue is set to true.",
        ),
        (
            {"FifoThroughputLimit": "perQueue"},
            False,
            "You can specify the FifoThroughputLimit only when FifoQueue is set to true.",
        ),
        (
            {"KmsMasterKeyId": "key", "SqsManagedSseEnabled": "true"},
            False,
            "You can use one type of server-side encryption (SSE) at one time.",
        ),
    ],
)
def test_attributes_that_a_queue_cannot_have(
    attributes: dict[str, str], is_fifo: bool, text: str
) -> None:
    error = refused(attributes, is_fifo=is_fifo)
    assert error.shape is INVALID_ATTRIBUTE_NAME
    assert error.message.startswith(text)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"FifoQueue": "false"}, "Reason: Modifying queue type is not supported."),
        ({"FifoQueue": "yes"}, "Invalid value for the parameter FifoQueue."),
        ({"ContentBasedDeduplication": "1"}, "parameter ContentBasedDeduplication."),
        ({"DeduplicationScope": "group"}, "parameter DeduplicationScope."),
        ({"FifoThroughputLimit": "perGroup"}, "parameter FifoThroughputLimit."),
        ({"FifoThroughputLimit": "perMessageGroupId"}, "parameter FifoThroughputLimit. Reason"),
        ({"SqsManagedSseEnabled": ""}, "parameter SqsManagedSseEnabled."),
        ({"Policy": "{"}, "parameter Policy."),
        ({"Policy": "[]"}, "parameter Policy."),
        ({"Policy": "[" * 10_000}, "parameter Policy."),
        ({"Policy": json.dumps({"Statement": []})}, "parameter Policy."),
        ({"Policy": json.dumps({"Statement": ["x"]})}, "parameter Policy."),
        ({"Policy": json.dumps({"Statement": {"Effect": []}})}, "parameter Policy."),
        ({"Policy": '{"Statement":{"Effect":"Allow","Id":"\ud800"}}'}, "parameter Policy."),
        ({"Policy": json.dumps({"Statement": STATEMENT, "Id": "x" * 8192})}, "parameter Policy."),
        ({"RedriveAllowPolicy": "{}"}, "as it's in an unsupported format."),
        ({"RedriveAllowPolicy": json.dumps({"redrivePermission": "x"})}, "unsupported format."),
        ({"RedriveAllowPolicy": json.dumps({"redrivePermission": {}})}, "unsupported format."),
        ({"RedrivePolicy": "[]"}, "Redrive policy is not a valid JSON map."),
    ],
)
def test_values_that_are_not_legal(attributes: dict[str, str], text: str) -> None:
    error = refused(attributes, is_fifo=True)
    assert error.shape is INVALID_ATTRIBUTE_VALUE
    assert text in error.message


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ({"deadLetterTargetArn": DEAD}, "does not contain mandatory attribute: maxReceiveCount."),
        ({"maxReceiveCount": 5}, "not contain mandatory attribute: deadLetterTargetArn."),
        ({"deadLetterTargetArn": DEAD, "maxReceiveCount": 0}, "maxReceiveCount: 0, valid values"),
        ({"deadLetterTargetArn": DEAD, "maxReceiveCount": 1001}, "from 1 to 1000 both inclusive."),
        ({"deadLetterTargetArn": DEAD, "maxReceiveCount": "x"}, "Invalid value for maxReceive"),
        ({"deadLetterTargetArn": DEAD, "maxReceiveCount": True}, "Invalid value for maxReceive"),
        ({"deadLetterTargetArn": "x", "maxReceiveCount": 5}, "value for deadLetterTargetArn."),
        ({"deadLetterTargetArn": 1, "maxReceiveCount": 5}, "value for deadLetterTargetArn."),
        (
            {
                "deadLetterTargetArn": DEAD.replace("000000000000", "111122223333"),
                "maxReceiveCount": 5,
            },
            "Dead-letter target owner should be same as the source.",
        ),
        (
            {"deadLetterTargetArn": DEAD, "maxReceiveCount": 5, "x": 1},
            "Only following attributes are supported: [maxReceiveCount, deadLetterTargetArn].",
        ),
    ],
)
def test_a_redrive_policy_that_is_not_legal(policy: dict[str, object], reason: str) -> None:
    text = json.dumps(policy)
    error = refused({"RedrivePolicy": text})
    assert error.shape is INVALID_PARAMETER_VALUE
    assert error.message.startswith(
        f"Value {text} for parameter RedrivePolicy is invalid. Reason: "
    )
    assert reason in error.message


@pytest.mark.parametrize("count", [7, "7"])
def test_a_redrive_policy_is_the_setting_of_the_queue(count: int | str) -> None:
    text = json.dumps({"deadLetterTargetArn": DEAD, "maxReceiveCount": count})
    change = change_of({"RedrivePolicy": text}, scope(), is_fifo=False, current={})
    assert change.settings == {"dead_letter_queue": "dead", "max_receive_count": "7"}
    assert parse_redrive(text, scope()).shown(scope()) == (
        f'{{"deadLetterTargetArn":"{DEAD}","maxReceiveCount":7}}'
    )


def test_a_policy_of_allowed_sources() -> None:
    by_queue = json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [DEAD]})
    assert allows_source(by_queue, DEAD)
    assert not allows_source(by_queue, f"{DEAD}-2")
    assert allows_source('{"redrivePermission": "allowAll"}', DEAD)
    assert not allows_source('{"redrivePermission": "denyAll"}', DEAD)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ({"redrivePermission": "byQueue"}, "one or more sourceQueueArns values."),
        (
            {"redrivePermission": "byQueue", "sourceQueueArns": []},
            "one or more sourceQueueArns values.",
        ),
        (
            {"redrivePermission": "byQueue", "sourceQueueArns": [DEAD] * 11},
            "The maximum number of source queue ARNs you can specify is 10.",
        ),
        (
            {"redrivePermission": "denyAll", "sourceQueueArns": [DEAD]},
            "you must set redrivePermission to byQueue.",
        ),
    ],
)
def test_a_policy_of_sources_that_is_not_legal(policy: dict[str, object], reason: str) -> None:
    error = refused({"RedriveAllowPolicy": json.dumps(policy)})
    assert error.shape is INVALID_PARAMETER_VALUE
    assert error.message.endswith(reason)


def test_a_policy_has_few_statements() -> None:
    change_of(
        {"Policy": json.dumps({"Statement": [STATEMENT] * 20})}, scope(), is_fifo=False, current={}
    )
    error = refused({"Policy": json.dumps({"Statement": [STATEMENT] * 21})})
    assert error.shape is OVER_LIMIT
    assert error.message.startswith("21 statements were found in the submitted policy")


def test_only_known_attributes_are_returned() -> None:
    check_asked(["All", "QueueArn", "FifoQueue", "ApproximateNumberOfMessages"])
    with pytest.raises(SqsError, match=r"Unknown Attribute Foobar\.") as caught:
        check_asked(["QueueArn", "Foobar"])
    assert caught.value.shape is INVALID_ATTRIBUTE_NAME
