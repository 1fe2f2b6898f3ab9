"""Requests carry the names of the API."""

import msgspec

from tidelog.gateway.sqs.protocol.requests import CreateQueueCall, SendMessageCall


def test_parameters_have_the_names_of_the_api() -> None:
    body = b'{"QueueUrl": "http://h/0/q", "MessageBody": "hello", "DelaySeconds": 5}'
    call = msgspec.json.decode(body, type=SendMessageCall)
    assert (call.queue_url, call.message_body, call.delay_seconds) == ("http://h/0/q", "hello", 5)
    assert call.message_group_id is None


def test_tags_of_a_new_queue_are_in_lower_case() -> None:
    call = msgspec.json.decode(b'{"QueueName": "q", "tags": {"a": "b"}}', type=CreateQueueCall)
    assert call.tags == {"a": "b"}
