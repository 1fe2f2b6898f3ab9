"""FIFO queues, as the Amazon SQS API Reference describes them, through boto3."""

from typing import Any

import pytest

from tests.system.sqs.clients import SqsClient
from tests.system.sqs.conftest import MakeQueue
from tests.system.sqs.failures import fails_with
from tests.system.sqs.test_messages import receive, receive_one
from tests.system.sqs.test_queues import arn_of, redrive_policy


def send(
    sqs: SqsClient, url: str, body: str, *, group: str = "g", **options: object
) -> dict[str, Any]:
    reply = sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=group, **options)
    return dict(reply)


def test_a_group_is_delivered_in_order_and_one_receive_at_a_time(sqs: SqsClient, fifo: str) -> None:
    for number in range(4):
        send(sqs, fifo, str(number), MessageDeduplicationId=str(number))
    send(sqs, fifo, "other", group="h", MessageDeduplicationId="other")

    first = receive_one(sqs, fifo)
    second = receive_one(sqs, fifo)

    assert first["Body"] == "0"
    assert second["Body"] == "other"
    assert receive(sqs, fifo) == []
    sqs.delete_message(QueueUrl=fifo, ReceiptHandle=first["ReceiptHandle"])
    assert [m["Body"] for m in receive(sqs, fifo)] == ["1", "2", "3"]


def test_sequence_numbers_grow(sqs: SqsClient, fifo: str) -> None:
    sent = [send(sqs, fifo, str(n), MessageDeduplicationId=str(n)) for n in range(3)]

    numbers = [int(each["SequenceNumber"]) for each in sent]
    assert numbers == sorted(set(numbers))
    found = receive_one(sqs, fifo, AttributeNames=["All"])["Attributes"]
    assert found["SequenceNumber"] == sent[0]["SequenceNumber"]
    assert found["MessageGroupId"] == "g"
    assert found["MessageDeduplicationId"] == "0"


def test_a_repeated_id_is_no_second_message(sqs: SqsClient, fifo: str) -> None:
    first = send(sqs, fifo, "one", MessageDeduplicationId="same")
    again = send(sqs, fifo, "two", group="h", MessageDeduplicationId="same")

    assert again["MessageId"] == first["MessageId"]
    assert again["SequenceNumber"] == first["SequenceNumber"]
    assert [m["Body"] for m in receive(sqs, fifo)] == ["one"]


def test_content_is_an_id_if_the_queue_says_so(sqs: SqsClient, make_queue: MakeQueue) -> None:
    url = make_queue(is_fifo=True, ContentBasedDeduplication="true")
    first = send(sqs, url, "same")
    again = send(
        sqs, url, "same", MessageAttributes={"a": {"DataType": "String", "StringValue": "b"}}
    )

    assert again["MessageId"] == first["MessageId"]
    found = receive_one(sqs, url, AttributeNames=["All"])["Attributes"]
    assert len(found["MessageDeduplicationId"]) == 64


def test_the_scope_of_ids_may_be_the_group(sqs: SqsClient, make_queue: MakeQueue) -> None:
    url = make_queue(
        is_fifo=True,
        DeduplicationScope="messageGroup",
        FifoThroughputLimit="perMessageGroupId",
    )
    first = send(sqs, url, "one", MessageDeduplicationId="same")
    other = send(sqs, url, "two", group="h", MessageDeduplicationId="same")
    again = send(sqs, url, "three", MessageDeduplicationId="same")

    assert again["MessageId"] == first["MessageId"] != other["MessageId"]


def test_what_a_fifo_queue_needs(sqs: SqsClient, fifo: str) -> None:
    with fails_with("MissingParameter", "MessageGroupId"):
        sqs.send_message(QueueUrl=fifo, MessageBody="x", MessageDeduplicationId="x")
    with fails_with("InvalidParameterValue", "ContentBasedDeduplication"):
        send(sqs, fifo, "x")
    with fails_with("InvalidParameterValue", "DelaySeconds"):
        send(sqs, fifo, "x", MessageDeduplicationId="x", DelaySeconds=1)
    for bad in ("", "x" * 129, "a b"):
        with fails_with("InvalidParameterValue", "MessageDeduplicationId"):
            send(sqs, fifo, "x", MessageDeduplicationId=bad)
        with fails_with("InvalidParameterValue", "MessageGroupId"):
            send(sqs, fifo, "x", group=bad, MessageDeduplicationId="x")


def test_what_a_standard_queue_refuses(sqs: SqsClient, queue: str) -> None:
    with fails_with("InvalidParameterValue", "MessageDeduplicationId"):
        sqs.send_message(QueueUrl=queue, MessageBody="x", MessageDeduplicationId="x")


def test_a_repeated_receive_attempt_has_the_same_messages(sqs: SqsClient, fifo: str) -> None:
    for number in range(3):
        send(sqs, fifo, str(number), MessageDeduplicationId=str(number))

    first = receive(sqs, fifo, ReceiveRequestAttemptId="attempt")
    again = receive(sqs, fifo, ReceiveRequestAttemptId="attempt")
    other = receive(sqs, fifo, ReceiveRequestAttemptId="other")

    assert [m["Body"] for m in first] == [m["Body"] for m in again] == ["0", "1", "2"]
    assert other == []


def test_a_batch_is_in_order(sqs: SqsClient, fifo: str) -> None:
    sent = sqs.send_message_batch(
        QueueUrl=fifo,
        Entries=[
            {
                "Id": str(n),
                "MessageBody": str(n),
                "MessageGroupId": "g",
                "MessageDeduplicationId": str(n),
            }
            for n in range(10)
        ],
    )

    numbers = [int(entry["SequenceNumber"]) for entry in sent["Successful"]]
    assert numbers == sorted(numbers)
    assert [m["Body"] for m in receive(sqs, fifo)] == [str(n) for n in range(10)]


def test_an_expired_handle_deletes_nothing(sqs_json: SqsClient, fifo: str) -> None:
    send(sqs_json, fifo, "x", MessageDeduplicationId="x")
    old = receive_one(sqs_json, fifo, VisibilityTimeout=0)["ReceiptHandle"]
    new = receive_one(sqs_json, fifo)["ReceiptHandle"]

    with fails_with("InvalidParameterValue", "expired"):
        sqs_json.delete_message(QueueUrl=fifo, ReceiptHandle=old)
    sqs_json.delete_message(QueueUrl=fifo, ReceiptHandle=new)


def test_dead_letters_of_a_group_keep_their_order(
    sqs: SqsClient, fifo: str, make_queue: MakeQueue
) -> None:
    source = make_queue(is_fifo=True, RedrivePolicy=redrive_policy(arn_of(sqs, fifo), 1))
    for number in range(3):
        send(sqs, source, str(number), MessageDeduplicationId=str(number))
    receive(sqs, source, VisibilityTimeout=0)

    assert receive(sqs, source) == []
    bodies: list[str] = []
    while len(bodies) < 3:
        messages = receive(sqs, fifo, WaitTimeSeconds=5)
        assert messages
        for message in messages:
            bodies.append(message["Body"])
            sqs.delete_message(QueueUrl=fifo, ReceiptHandle=message["ReceiptHandle"])
    assert bodies == ["0", "1", "2"]


@pytest.mark.parametrize("attribute", ["FifoQueue"])
def test_the_kind_of_a_queue_does_not_change(sqs: SqsClient, fifo: str, attribute: str) -> None:
    with fails_with("InvalidAttributeValue"):
        sqs.set_queue_attributes(QueueUrl=fifo, Attributes={attribute: "false"})
