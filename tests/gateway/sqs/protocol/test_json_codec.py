"""AWS JSON 1.0: requests by their target, replies and errors as SDKs read them."""

import msgspec
import pytest

from tidelog.gateway.sqs.http.messages import HttpRequest
from tidelog.gateway.sqs.protocol.codec import CALLS
from tidelog.gateway.sqs.protocol.errors import (
    QUEUE_DOES_NOT_EXIST,
    SqsError,
    queue_does_not_exist,
)
from tidelog.gateway.sqs.protocol.json_codec import JSON
from tidelog.gateway.sqs.protocol.replies import DONE, MessageSent, QueueLocated
from tidelog.gateway.sqs.protocol.requests import SendMessageCall


def _request(target: bytes, body: bytes) -> HttpRequest:
    headers = {b"x-amz-target": target, b"content-type": b"application/x-amz-json-1.0"}
    return HttpRequest(b"POST", b"/", headers, body)


def test_there_are_23_actions() -> None:
    assert len(CALLS) == 23


def test_a_request_is_decoded_by_its_target() -> None:
    body = b'{"QueueUrl": "http://h/0/q", "MessageBody": "hello"}'
    action, call = JSON.decode(_request(b"AmazonSQS.SendMessage", body))
    assert action == "SendMessage"
    assert call == SendMessageCall(queue_url="http://h/0/q", message_body="hello")


def test_an_unknown_action_is_refused() -> None:
    with pytest.raises(SqsError) as raised:
        JSON.decode(_request(b"AmazonSQS.Frob", b"{}"))
    assert raised.value.shape.json_name == "UnknownOperationException"


def test_a_reply_leaves_out_what_is_absent() -> None:
    response = JSON.encode_reply("SendMessage", MessageSent(message_id="a"), "r-1")
    assert response.status == 200
    assert response.content_type == "application/x-amz-json-1.0"
    assert response.body == b'{"MessageId":"a"}'
    assert ("x-amzn-RequestId", "r-1") in response.headers


def test_an_action_without_result_has_no_body() -> None:
    assert JSON.encode_reply("DeleteMessage", DONE, "r-1").body == b""
    assert JSON.encode_reply("GetQueueUrl", QueueLocated(), "r-1").body == b"{}"


def test_an_error_has_both_names() -> None:
    response = JSON.encode_error(queue_does_not_exist(), "r-1")
    assert response.status == QUEUE_DOES_NOT_EXIST.status == 400
    assert msgspec.json.decode(response.body) == {
        "__type": "com.amazonaws.sqs#QueueDoesNotExist",
        "message": "The specified queue does not exist.",
    }
    query_error = "AWS.SimpleQueueService.NonExistentQueue;Sender"
    assert ("x-amzn-query-error", query_error) in response.headers


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"DelaySeconds": "5"}', "STRING_VALUE can not be converted to an Integer"),
        (b'{"QueueUrl": 5}', "NUMBER_VALUE can not be converted to a String"),
        (b'{"QueueUrl": {}}', "Start of structure or map found where not expected."),
        (b'{"DelaySeconds": []}', "Start of list found where not expected"),
        (b'{"MessageAttributes": 5}', "Unexpected field type"),
        (b'{"QueueUrl": "\xff"}', ""),
        (b"nonsense", ""),
        (b'{"Unknown": ' + b"[" * 100_000, ""),
    ],
)
def test_a_malformed_body_is_refused(body: bytes, text: str) -> None:
    with pytest.raises(SqsError) as raised:
        JSON.decode(_request(b"AmazonSQS.SendMessage", body))
    assert (raised.value.shape.json_name, raised.value.message) == ("SerializationException", text)
    response = JSON.encode_error(raised.value, "r-1")
    expected = {"__type": "com.amazon.coral.service#SerializationException"}
    assert msgspec.json.decode(response.body) == expected | ({"message": text} if text else {})
