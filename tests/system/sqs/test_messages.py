"""Messages of standard queues, as the Amazon SQS API Reference describes them, through boto3."""

import base64
import hashlib
import json
from typing import Any
from uuid import UUID

import pytest
import trio

from tests.system.sqs.clients import SqsClient
from tests.system.sqs.conftest import MakeQueue
from tests.system.sqs.failures import fails_with
from tests.system.sqs.test_queues import arn_of, attributes_of, redrive_policy

TRACE = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1"


def receive(sqs: SqsClient, url: str, count: int = 10, **options: object) -> list[dict[str, Any]]:
    reply = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=count, **options)
    return list(reply.get("Messages", []))


def receive_one(sqs: SqsClient, url: str, **options: object) -> dict[str, Any]:
    (message,) = receive(sqs, url, 1, WaitTimeSeconds=5, **options)
    return message


def test_a_message_is_sent_received_and_deleted(sqs: SqsClient, queue: str) -> None:
    sent = sqs.send_message(QueueUrl=queue, MessageBody="grüße")

    message = receive_one(sqs, queue)
    assert message["Body"] == "grüße"
    assert message["MessageId"] == sent["MessageId"] == str(UUID(sent["MessageId"]))
    md5 = hashlib.md5("grüße".encode(), usedforsecurity=False).hexdigest()
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"] == md5
    assert set(message) == {"Body", "MessageId", "MD5OfBody", "ReceiptHandle"}
    assert attributes_of(sqs, queue)["ApproximateNumberOfMessagesNotVisible"] == "1"

    sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])

    found = attributes_of(sqs, queue)
    assert found["ApproximateNumberOfMessages"] == "0"
    assert found["ApproximateNumberOfMessagesNotVisible"] == "0"


def test_message_attributes_come_back_with_their_md5(sqs: SqsClient, queue: str) -> None:
    wanted: dict[str, dict[str, Any]] = {
        "text": {"DataType": "String", "StringValue": "Ä & <b>"},
        "count": {"DataType": "Number.int", "StringValue": "-12.5"},
        "blob": {"DataType": "Binary.gif", "BinaryValue": bytes(range(256))},
    }
    sent = sqs.send_message(QueueUrl=queue, MessageBody="x", MessageAttributes=wanted)

    # boto3 does not compare the digest of attributes; the rule is the Developer Guide's.
    digest = hashlib.md5(usedforsecurity=False)
    for name in sorted(wanted):
        value = wanted[name]
        for part in (name, value["DataType"]):
            digest.update(len(part).to_bytes(4, "big") + part.encode())
        is_binary = "BinaryValue" in value
        raw = value["BinaryValue"] if is_binary else value["StringValue"].encode()
        digest.update((b"\2" if is_binary else b"\1") + len(raw).to_bytes(4, "big") + raw)
    assert sent["MD5OfMessageAttributes"] == digest.hexdigest()
    message = receive_one(sqs, queue, MessageAttributeNames=["All"])
    assert message["MessageAttributes"] == wanted
    assert message["MD5OfMessageAttributes"] == digest.hexdigest()


def test_names_choose_message_attributes(sqs: SqsClient, queue: str) -> None:
    one = {"DataType": "String", "StringValue": "1"}
    sqs.send_message(
        QueueUrl=queue, MessageBody="x", MessageAttributes={"a.b": one, "a.c": one, "d": one}
    )

    def names(*wanted: str) -> set[str]:
        message = receive_one(sqs, queue, VisibilityTimeout=0, MessageAttributeNames=list(wanted))
        return set(message.get("MessageAttributes", {}))

    assert names() == set()
    assert names("d", "none") == {"d"}
    assert names("a.*") == {"a.b", "a.c"}
    assert names(".*") == names("All") == {"a.b", "a.c", "d"}


def test_system_attributes_describe_the_message(sqs: SqsClient, queue: str) -> None:
    sqs.send_message(
        QueueUrl=queue,
        MessageBody="x",
        MessageSystemAttributes={
            "AWSTraceHeader": {"DataType": "String", "StringValue": TRACE},
        },
    )

    message = receive_one(sqs, queue, VisibilityTimeout=0, AttributeNames=["All"])
    found = message["Attributes"]
    assert found["ApproximateReceiveCount"] == "1"
    assert found["AWSTraceHeader"] == TRACE
    assert found["SenderId"]
    first = int(found["ApproximateFirstReceiveTimestamp"])
    assert 0 <= first - int(found["SentTimestamp"]) < 60_000
    again = receive_one(sqs, queue, AttributeNames=["ApproximateReceiveCount"])
    assert again["Attributes"] == {"ApproximateReceiveCount": "2"}


def test_the_newer_name_of_the_parameter_chooses_as_well(sqs: SqsClient, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="x")

    message = receive_one(sqs, queue, MessageSystemAttributeNames=["SenderId", "SentTimestamp"])

    assert set(message["Attributes"]) == {"SenderId", "SentTimestamp"}


@pytest.mark.parametrize(
    "attributes",
    [
        {"": {"DataType": "String", "StringValue": "x"}},
        {"AWS.x": {"DataType": "String", "StringValue": "x"}},
        {".x": {"DataType": "String", "StringValue": "x"}},
        {"x y": {"DataType": "String", "StringValue": "x"}},
        {"x": {"DataType": "Colour", "StringValue": "x"}},
        {"x": {"DataType": "String", "StringValue": ""}},
        {"x": {"DataType": "Number", "StringValue": "one"}},
        {"x": {"DataType": "String", "BinaryValue": b"x"}},
        {f"a{n}": {"DataType": "String", "StringValue": "x"} for n in range(11)},
    ],
)
def test_bad_message_attributes_are_refused(
    sqs_json: SqsClient, queue: str, attributes: dict[str, Any]
) -> None:
    with fails_with("InvalidParameterValue"):
        sqs_json.send_message(QueueUrl=queue, MessageBody="x", MessageAttributes=attributes)


def test_a_message_is_hidden_for_the_visibility_timeout(sqs_json: SqsClient, queue: str) -> None:
    sqs_json.send_message(QueueUrl=queue, MessageBody="x")
    first = receive_one(sqs_json, queue, VisibilityTimeout=1)

    assert receive(sqs_json, queue) == []
    again = receive_one(sqs_json, queue)

    assert again["MessageId"] == first["MessageId"]
    assert again["ReceiptHandle"] != first["ReceiptHandle"]


def test_the_visibility_timeout_of_a_message_changes(sqs: SqsClient, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="x")
    message = receive_one(sqs, queue, VisibilityTimeout=600)

    sqs.change_message_visibility(
        QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
    )

    assert receive_one(sqs, queue)["MessageId"] == message["MessageId"]
    with fails_with("InvalidParameterValue", "VisibilityTimeout"):
        sqs.change_message_visibility(
            QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=43_201
        )


def test_a_deleted_message_has_no_visibility_timeout(sqs: SqsClient, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="x")
    handle = receive_one(sqs, queue)["ReceiptHandle"]
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=handle)

    with fails_with("InvalidParameterValue"):
        sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=handle, VisibilityTimeout=60)


def test_text_that_is_no_handle_is_refused(sqs: SqsClient, queue: str) -> None:
    with fails_with("ReceiptHandleIsInvalid", 'The input receipt handle "nothing" is'):
        sqs.delete_message(QueueUrl=queue, ReceiptHandle="nothing")
    with fails_with("ReceiptHandleIsInvalid", 'The input receipt handle "nothing" is'):
        sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle="nothing", VisibilityTimeout=0)


def test_a_delayed_message_comes_later(sqs_json: SqsClient, make_queue: MakeQueue) -> None:
    url = make_queue(DelaySeconds="900")
    sqs_json.send_message(QueueUrl=url, MessageBody="far")
    sqs_json.send_message(QueueUrl=url, MessageBody="near", DelaySeconds=1)

    assert receive(sqs_json, url) == []
    assert attributes_of(sqs_json, url)["ApproximateNumberOfMessagesDelayed"] == "2"
    assert receive_one(sqs_json, url)["Body"] == "near"
    with fails_with("InvalidParameterValue", "DelaySeconds"):
        sqs_json.send_message(QueueUrl=url, MessageBody="x", DelaySeconds=901)


async def test_a_long_poll_ends_with_the_message(sqs_json: SqsClient, queue: str) -> None:
    received: list[dict[str, Any]] = []

    def poll() -> None:
        received.extend(receive(sqs_json, queue, WaitTimeSeconds=20))

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, poll)
        await trio.sleep(0.3)
        await trio.to_thread.run_sync(
            lambda: sqs_json.send_message(QueueUrl=queue, MessageBody="late")
        )

    assert [message["Body"] for message in received] == ["late"]
    assert trio.current_time() - began < 15


def test_numbers_out_of_range_are_refused(sqs: SqsClient, queue: str) -> None:
    for count in (0, 11):
        with fails_with("InvalidParameterValue", "MaxNumberOfMessages"):
            sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=count)
    for seconds in (-1, 21):
        with fails_with("InvalidParameterValue", "WaitTimeSeconds"):
            sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=seconds)
    with fails_with("InvalidParameterValue", "VisibilityTimeout"):
        sqs.receive_message(QueueUrl=queue, VisibilityTimeout=43_201)


def test_bodies_have_characters_of_xml_only(sqs: SqsClient, queue: str) -> None:
    allowed = "\t\n\r \ud7ff\ue000\ufffd\U00010000\U0010ffff]]>&<>\"'"

    sqs.send_message(QueueUrl=queue, MessageBody=allowed)

    assert receive_one(sqs, queue)["Body"] == allowed
    for body in ("\0", "a\x1b", "\ufffe", "\uffff"):
        with fails_with("InvalidMessageContents"):
            sqs.send_message(QueueUrl=queue, MessageBody=body)
    with fails_with("MissingParameter", "MessageBody"):
        sqs.send_message(QueueUrl=queue, MessageBody="")


def test_a_message_has_a_mebibyte_with_its_attributes(sqs_json: SqsClient, queue: str) -> None:
    body = base64.b64encode(hashlib.shake_128(b"").digest(768 * 1024)).decode()
    assert len(body) == 1_048_576

    sqs_json.send_message(QueueUrl=queue, MessageBody=body)

    assert receive_one(sqs_json, queue)["Body"] == body
    with fails_with("InvalidParameterValue", "1048576"):
        sqs_json.send_message(QueueUrl=queue, MessageBody=body + "x")
    with fails_with("InvalidParameterValue", "1048576"):
        sqs_json.send_message(
            QueueUrl=queue,
            MessageBody=body,
            MessageAttributes={"a": {"DataType": "String", "StringValue": "b"}},
        )


def test_a_queue_may_allow_less(sqs: SqsClient, make_queue: MakeQueue) -> None:
    url = make_queue(MaximumMessageSize="1024")

    sqs.send_message(QueueUrl=url, MessageBody="x" * 1024)
    with fails_with("InvalidParameterValue", "1024"):
        sqs.send_message(QueueUrl=url, MessageBody="x" * 1025)


def test_a_message_becomes_a_dead_letter(sqs: SqsClient, queue: str, make_queue: MakeQueue) -> None:
    source = make_queue(RedrivePolicy=redrive_policy(arn_of(sqs, queue), 2))
    attribute = {"a": {"DataType": "String", "StringValue": "b"}}
    sent = sqs.send_message(QueueUrl=source, MessageBody="x", MessageAttributes=attribute)
    for _ in range(2):
        receive_one(sqs, source, VisibilityTimeout=0)

    assert receive(sqs, source) == []
    dead = receive_one(sqs, queue, AttributeNames=["All"], MessageAttributeNames=["All"])

    assert dead["MessageId"] == sent["MessageId"]
    assert dead["Body"] == "x"
    assert dead["MessageAttributes"] == attribute
    assert dead["Attributes"]["DeadLetterQueueSourceArn"] == arn_of(sqs, source)
    assert int(dead["Attributes"]["ApproximateReceiveCount"]) >= 3


def test_a_batch_succeeds_and_fails_by_entry(sqs: SqsClient, queue: str) -> None:
    sent = sqs.send_message_batch(
        QueueUrl=queue,
        Entries=[
            {"Id": "one", "MessageBody": "1"},
            {"Id": "late", "MessageBody": "2", "DelaySeconds": 901},
            {
                "Id": "three",
                "MessageBody": "3",
                "MessageAttributes": {"a": {"DataType": "String", "StringValue": "b"}},
            },
            {"Id": "bad", "MessageBody": "\0"},
        ],
    )

    assert [entry["Id"] for entry in sent["Successful"]] == ["one", "three"]
    assert {(e["Id"], e["Code"], e["SenderFault"]) for e in sent["Failed"]} == {
        ("late", "InvalidParameterValue", True),
        ("bad", "InvalidMessageContents", True),
    }
    assert "MD5OfMessageAttributes" in sent["Successful"][1]
    messages = receive(sqs, queue, VisibilityTimeout=600)
    assert {message["Body"] for message in messages} == {"1", "3"}
    changed = sqs.change_message_visibility_batch(
        QueueUrl=queue,
        Entries=[
            {"Id": "a", "ReceiptHandle": messages[0]["ReceiptHandle"], "VisibilityTimeout": 0},
            {"Id": "b", "ReceiptHandle": "nothing", "VisibilityTimeout": 0},
        ],
    )
    assert [entry["Id"] for entry in changed["Successful"]] == ["a"]
    assert [(e["Id"], e["Code"]) for e in changed["Failed"]] == [("b", "ReceiptHandleIsInvalid")]
    deleted = sqs.delete_message_batch(
        QueueUrl=queue,
        Entries=[
            {"Id": "a", "ReceiptHandle": messages[0]["ReceiptHandle"]},
            {"Id": "b", "ReceiptHandle": messages[1]["ReceiptHandle"]},
            {"Id": "c", "ReceiptHandle": "nothing"},
        ],
    )
    assert [entry["Id"] for entry in deleted["Successful"]] == ["a", "b"]
    assert [(e["Id"], e["Code"]) for e in deleted["Failed"]] == [("c", "ReceiptHandleIsInvalid")]


@pytest.mark.parametrize(
    ("ids", "code"),
    [
        ([], "EmptyBatchRequest"),
        (["a", "a"], "BatchEntryIdsNotDistinct"),
        ([str(number) for number in range(11)], "TooManyEntriesInBatchRequest"),
        (["a b"], "InvalidBatchEntryId"),
        (["x" * 81], "InvalidBatchEntryId"),
    ],
)
def test_a_batch_fails_as_a_whole(sqs: SqsClient, queue: str, ids: list[str], code: str) -> None:
    code = f"AWS.SimpleQueueService.{code}"
    with fails_with(code):
        sqs.send_message_batch(
            QueueUrl=queue, Entries=[{"Id": each, "MessageBody": "x"} for each in ids]
        )
    with fails_with(code):
        sqs.delete_message_batch(
            QueueUrl=queue, Entries=[{"Id": each, "ReceiptHandle": "x"} for each in ids]
        )
    with fails_with(code):
        sqs.change_message_visibility_batch(
            QueueUrl=queue,
            Entries=[{"Id": each, "ReceiptHandle": "x", "VisibilityTimeout": 1} for each in ids],
        )


def test_a_batch_has_a_mebibyte_at_most(sqs_json: SqsClient, queue: str) -> None:
    with fails_with("AWS.SimpleQueueService.BatchRequestTooLong", "1048576"):
        sqs_json.send_message_batch(
            QueueUrl=queue,
            Entries=[{"Id": str(number), "MessageBody": "x" * 600_000} for number in range(2)],
        )


def test_a_quiet_group_does_not_wait_for_a_noisy_one(sqs_json: SqsClient, queue: str) -> None:
    for first in range(0, 60, 10):
        sqs_json.send_message_batch(
            QueueUrl=queue,
            Entries=[
                {"Id": str(n), "MessageBody": "noisy", "MessageGroupId": "n"}
                for n in range(first, first + 10)
            ],
        )
    sqs_json.send_message(QueueUrl=queue, MessageBody="quiet", MessageGroupId="q")

    bodies = [m["Body"] for _ in range(4) for m in receive(sqs_json, queue)]

    assert "quiet" in bodies


def test_a_message_of_boto3_is_a_record_of_json(sqs_json: SqsClient, queue: str) -> None:
    body = json.dumps({"order": 17})
    sqs_json.send_message(QueueUrl=queue, MessageBody=body)

    assert json.loads(receive_one(sqs_json, queue)["Body"]) == {"order": 17}
