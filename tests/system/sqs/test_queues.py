"""Actions on queues, as the Amazon SQS API Reference describes them, through boto3."""

import json

import pytest

from tests.system.sqs.clients import SqsClient
from tests.system.sqs.conftest import MakeQueue, new_name
from tests.system.sqs.failures import fails_with

DEFAULTS = {
    "VisibilityTimeout": "30",
    "DelaySeconds": "0",
    "MaximumMessageSize": "1048576",
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "ApproximateNumberOfMessages": "0",
    "ApproximateNumberOfMessagesNotVisible": "0",
    "ApproximateNumberOfMessagesDelayed": "0",
    "SqsManagedSseEnabled": "true",
}


def attributes_of(sqs: SqsClient, url: str, *names: str) -> dict[str, str]:
    reply = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(names or ["All"]))
    return dict(reply.get("Attributes", {}))


def arn_of(sqs: SqsClient, url: str) -> str:
    return attributes_of(sqs, url, "QueueArn")["QueueArn"]


def redrive_policy(arn: str, count: int) -> str:
    return json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": count})


def test_a_new_queue_has_the_defaults_of_the_vendor(sqs: SqsClient, endpoint: str) -> None:
    name = new_name()

    url = sqs.create_queue(QueueName=name)["QueueUrl"]

    assert url == f"{endpoint}/000000000000/{name}"
    found = attributes_of(sqs, url)
    assert found == {
        **DEFAULTS,
        "QueueArn": f"arn:aws:sqs:us-east-1:000000000000:{name}",
        "CreatedTimestamp": found["CreatedTimestamp"],
        "LastModifiedTimestamp": found["CreatedTimestamp"],
    }
    assert len(found["CreatedTimestamp"]) == len("1700000000")


def test_a_new_fifo_queue_says_so(sqs: SqsClient, fifo: str) -> None:
    found = attributes_of(sqs, fifo)

    assert fifo.endswith(".fifo")
    assert found["FifoQueue"] == "true"
    assert found["ContentBasedDeduplication"] == "false"
    assert found["DeduplicationScope"] == "queue"
    assert found["FifoThroughputLimit"] == "perQueue"


def test_attributes_of_a_creation_are_kept(sqs: SqsClient, make_queue: MakeQueue) -> None:
    wanted = {
        "VisibilityTimeout": "7",
        "DelaySeconds": "900",
        "MaximumMessageSize": "1024",
        "MessageRetentionPeriod": "60",
        "ReceiveMessageWaitTimeSeconds": "20",
        "KmsMasterKeyId": "alias/aws/sqs",
        "KmsDataKeyReusePeriodSeconds": "600",
    }

    url = make_queue(**wanted)

    assert attributes_of(sqs, url, *wanted) == wanted


def test_high_throughput_of_a_fifo_queue_is_kept(sqs: SqsClient, make_queue: MakeQueue) -> None:
    wanted = {
        "ContentBasedDeduplication": "true",
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perMessageGroupId",
    }

    url = make_queue(is_fifo=True, **wanted)

    assert attributes_of(sqs, url, *wanted) == wanted


def test_a_repeated_creation_returns_the_queue(sqs: SqsClient) -> None:
    name = new_name()
    url = sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "7"})["QueueUrl"]

    again = sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "7"})["QueueUrl"]
    bare = sqs.create_queue(QueueName=name)["QueueUrl"]

    assert again == bare == url


def test_a_creation_with_other_attributes_is_refused(sqs: SqsClient) -> None:
    name = new_name()
    sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "7"})

    with fails_with("QueueAlreadyExists", "VisibilityTimeout"):
        sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "8"})
    with pytest.raises(sqs.exceptions.QueueNameExists):
        sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "8"})


@pytest.mark.parametrize("name", ["a" * 81, "with space", "dotted.name", "slash/ed", "ünicode"])
def test_names_of_other_characters_are_refused(sqs: SqsClient, name: str) -> None:
    with fails_with("InvalidParameterValue", "alphanumeric characters, hyphens, or underscores"):
        sqs.create_queue(QueueName=name)


def test_the_suffix_and_the_attribute_of_a_fifo_queue_belong_together(sqs: SqsClient) -> None:
    with fails_with("InvalidParameterValue"):
        sqs.create_queue(QueueName=new_name(".fifo"))
    with fails_with("InvalidParameterValue"):
        sqs.create_queue(QueueName=new_name(), Attributes={"FifoQueue": "true"})


@pytest.mark.parametrize(
    ("attribute", "values"),
    [
        ("VisibilityTimeout", ["-1", "43201", "abc", ""]),
        ("DelaySeconds", ["-1", "901"]),
        ("MaximumMessageSize", ["1023", "1048577"]),
        ("MessageRetentionPeriod", ["59", "1209601"]),
        ("ReceiveMessageWaitTimeSeconds", ["-1", "21"]),
        ("KmsDataKeyReusePeriodSeconds", ["59", "86401"]),
        ("Policy", ["{"]),
    ],
)
def test_values_out_of_range_are_refused(
    sqs: SqsClient, queue: str, attribute: str, values: list[str]
) -> None:
    for value in values:
        with fails_with("InvalidAttributeValue", attribute):
            sqs.create_queue(QueueName=new_name(), Attributes={attribute: value})
        with fails_with("InvalidAttributeValue", attribute):
            sqs.set_queue_attributes(QueueUrl=queue, Attributes={attribute: value})


def test_unknown_attributes_are_refused(sqs: SqsClient, queue: str) -> None:
    with fails_with("InvalidAttributeName", "Colour"):
        sqs.create_queue(QueueName=new_name(), Attributes={"Colour": "red"})
    with fails_with("InvalidAttributeName", "Colour"):
        sqs.set_queue_attributes(QueueUrl=queue, Attributes={"Colour": "red"})
    with fails_with("InvalidAttributeName", "Colour"):
        sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["Colour"])


def test_attributes_change_at_run_time(sqs: SqsClient, queue: str) -> None:
    sqs.set_queue_attributes(
        QueueUrl=queue, Attributes={"VisibilityTimeout": "0", "DelaySeconds": "3"}
    )

    found = attributes_of(sqs, queue)
    assert found["VisibilityTimeout"] == "0"
    assert found["DelaySeconds"] == "3"
    assert found["LastModifiedTimestamp"] >= found["CreatedTimestamp"]


def test_only_the_attributes_that_are_asked_for_come(sqs: SqsClient, queue: str) -> None:
    assert set(attributes_of(sqs, queue, "DelaySeconds", "QueueArn")) == {
        "DelaySeconds",
        "QueueArn",
    }
    assert "Attributes" not in sqs.get_queue_attributes(QueueUrl=queue)


def test_the_url_of_a_queue_is_found_by_its_name(sqs: SqsClient, queue: str) -> None:
    name = queue.rpartition("/")[2]

    assert sqs.get_queue_url(QueueName=name)["QueueUrl"] == queue
    own = sqs.get_queue_url(QueueName=name, QueueOwnerAWSAccountId="000000000000")
    assert own["QueueUrl"] == queue


def test_a_queue_that_is_missing_has_the_error_of_both_names(sqs: SqsClient, queue: str) -> None:
    missing = queue + "-missing"

    with fails_with("AWS.SimpleQueueService.NonExistentQueue", "queue does not exist"):
        sqs.get_queue_url(QueueName="missing")
    with fails_with("AWS.SimpleQueueService.NonExistentQueue", "queue does not exist"):
        sqs.send_message(QueueUrl=missing, MessageBody="x")
    for action in ("receive_message", "purge_queue", "delete_queue", "list_queue_tags"):
        with pytest.raises(sqs.exceptions.QueueDoesNotExist):
            getattr(sqs, action)(QueueUrl=missing)
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        attributes_of(sqs, missing)
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.list_dead_letter_source_queues(QueueUrl=missing)


def test_queues_are_listed_by_prefix_and_in_pages(sqs: SqsClient) -> None:
    prefix = new_name("-list-")
    urls = [sqs.create_queue(QueueName=f"{prefix}{number}")["QueueUrl"] for number in range(5)]

    assert sqs.list_queues(QueueNamePrefix=prefix)["QueueUrls"] == urls
    first = sqs.list_queues(QueueNamePrefix=prefix, MaxResults=2)
    rest = sqs.list_queues(QueueNamePrefix=prefix, MaxResults=3, NextToken=first["NextToken"])
    assert first["QueueUrls"] + rest["QueueUrls"] == urls
    assert "NextToken" not in rest
    pages = sqs.get_paginator("list_queues").paginate(
        QueueNamePrefix=prefix, PaginationConfig={"PageSize": 2}
    )
    assert [url for page in pages for url in page["QueueUrls"]] == urls
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix=prefix + "none")


def test_a_deleted_queue_is_gone(sqs: SqsClient, queue: str) -> None:
    sqs.delete_queue(QueueUrl=queue)

    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.get_queue_url(QueueName=queue.rpartition("/")[2])


def test_tags_are_set_listed_and_removed(sqs: SqsClient) -> None:
    name = new_name()
    url = sqs.create_queue(QueueName=name, tags={"team": "billing"})["QueueUrl"]

    sqs.tag_queue(QueueUrl=url, Tags={"stage": "prüf", "empty": ""})
    sqs.untag_queue(QueueUrl=url, TagKeys=["team", "unknown"])

    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"stage": "prüf", "empty": ""}
    bare = sqs.create_queue(QueueName=new_name())["QueueUrl"]
    assert "Tags" not in sqs.list_queue_tags(QueueUrl=bare)


def test_a_queue_has_fifty_tags(sqs: SqsClient, queue: str) -> None:
    tags = {f"tag-{number}": "v" * 256 for number in range(50)}

    sqs.tag_queue(QueueUrl=queue, Tags=tags)

    assert sqs.list_queue_tags(QueueUrl=queue)["Tags"] == tags


def test_a_purge_deletes_all_messages(sqs: SqsClient, queue: str) -> None:
    for number in range(3):
        sqs.send_message(QueueUrl=queue, MessageBody=str(number), DelaySeconds=number)

    sqs.purge_queue(QueueUrl=queue)

    assert "Messages" not in sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)


def test_permissions_are_statements_of_the_policy(sqs: SqsClient, queue: str) -> None:
    sqs.add_permission(
        QueueUrl=queue,
        Label="readers",
        AWSAccountIds=["111122223333"],
        Actions=["ReceiveMessage", "DeleteMessage"],
    )

    policy = json.loads(attributes_of(sqs, queue, "Policy")["Policy"])
    (statement,) = policy["Statement"]
    assert statement["Sid"] == "readers"
    assert statement["Effect"] == "Allow"
    assert "111122223333" in json.dumps(statement["Principal"])
    actions = statement["Action"]
    assert sorted(action.lower() for action in actions) == [
        "sqs:deletemessage",
        "sqs:receivemessage",
    ]
    with fails_with("InvalidParameterValue"):
        sqs.add_permission(
            QueueUrl=queue, Label="readers", AWSAccountIds=["111122223333"], Actions=["*"]
        )
    sqs.remove_permission(QueueUrl=queue, Label="readers")
    with fails_with("InvalidParameterValue"):
        sqs.remove_permission(QueueUrl=queue, Label="readers")


def test_sources_of_a_dead_letter_queue_are_listed(
    sqs: SqsClient, queue: str, make_queue: MakeQueue
) -> None:
    policy = redrive_policy(arn_of(sqs, queue), 3)
    sources = [make_queue(RedrivePolicy=policy) for _ in range(3)]

    found = sqs.list_dead_letter_source_queues(QueueUrl=queue)["queueUrls"]
    first = sqs.list_dead_letter_source_queues(QueueUrl=queue, MaxResults=2)
    rest = sqs.list_dead_letter_source_queues(
        QueueUrl=queue, MaxResults=2, NextToken=first["NextToken"]
    )

    assert sorted(found) == sorted(sources)
    assert sorted(first["queueUrls"] + rest["queueUrls"]) == sorted(sources)
    kept = json.loads(attributes_of(sqs, sources[0], "RedrivePolicy")["RedrivePolicy"])
    assert kept == json.loads(policy)


def test_a_redrive_policy_is_removed_by_an_empty_value(
    sqs: SqsClient, queue: str, make_queue: MakeQueue
) -> None:
    source = make_queue(RedrivePolicy=redrive_policy(arn_of(sqs, queue), 3))

    sqs.set_queue_attributes(QueueUrl=source, Attributes={"RedrivePolicy": ""})

    assert "RedrivePolicy" not in attributes_of(sqs, source)
    assert not sqs.list_dead_letter_source_queues(QueueUrl=queue).get("queueUrls")


def test_bad_redrive_policies_are_refused(sqs: SqsClient, queue: str, fifo: str) -> None:
    own = arn_of(sqs, queue)

    with fails_with("InvalidAttributeValue", "RedrivePolicy"):
        sqs.set_queue_attributes(QueueUrl=queue, Attributes={"RedrivePolicy": "{"})
    for policy in (
        json.dumps({"deadLetterTargetArn": own}),
        redrive_policy(own, 0),
        redrive_policy(own, 1001),
        redrive_policy(own + "-missing", 3),
        redrive_policy(arn_of(sqs, fifo), 3),
    ):
        with fails_with("InvalidParameterValue", "RedrivePolicy"):
            sqs.set_queue_attributes(QueueUrl=queue, Attributes={"RedrivePolicy": policy})


def test_a_dead_letter_queue_chooses_its_sources(sqs: SqsClient, make_queue: MakeQueue) -> None:
    closed = make_queue(RedriveAllowPolicy=json.dumps({"redrivePermission": "denyAll"}))
    source = make_queue()
    named = make_queue(
        RedriveAllowPolicy=json.dumps(
            {"redrivePermission": "byQueue", "sourceQueueArns": [arn_of(sqs, source)]}
        )
    )

    with fails_with("InvalidParameterValue", "RedrivePolicy"):
        make_queue(RedrivePolicy=redrive_policy(arn_of(sqs, closed), 3))
    with fails_with("InvalidParameterValue", "RedrivePolicy"):
        make_queue(RedrivePolicy=redrive_policy(arn_of(sqs, named), 3))
    sqs.set_queue_attributes(
        QueueUrl=source, Attributes={"RedrivePolicy": redrive_policy(arn_of(sqs, named), 3)}
    )

    assert sqs.list_dead_letter_source_queues(QueueUrl=named)["queueUrls"] == [source]
