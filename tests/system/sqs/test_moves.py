"""Message move tasks, as the Amazon SQS API Reference describes them, through boto3."""

from typing import Any

import pytest

from tests.system.sqs.clients import SqsClient
from tests.system.sqs.conftest import MakeQueue
from tests.system.sqs.failures import fails_with
from tests.system.sqs.test_messages import receive, receive_one
from tests.system.sqs.test_queues import arn_of, redrive_policy


@pytest.fixture
def source(sqs: SqsClient, queue: str, make_queue: MakeQueue) -> str:
    """Return a queue with three dead letters in `queue`."""
    url = make_queue(RedrivePolicy=redrive_policy(arn_of(sqs, queue), 1))
    for number in range(3):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    seen = 0
    while seen < 3:
        seen += len(receive(sqs, url, VisibilityTimeout=0, WaitTimeSeconds=5))
    receive(sqs, url)
    dead: list[str] = []
    while len(dead) < 3:
        found = receive(sqs, queue, WaitTimeSeconds=5)
        dead.extend(message["ReceiptHandle"] for message in found)
    for handle in dead:
        sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=handle, VisibilityTimeout=0)
    return url


def wait_for_end(sqs: SqsClient, arn: str) -> dict[str, Any]:
    while True:
        task: dict[str, Any] = sqs.list_message_move_tasks(SourceArn=arn)["Results"][0]
        if task["Status"] not in {"RUNNING", "CANCELLING"}:
            return task


def test_dead_letters_return_to_their_source(sqs: SqsClient, queue: str, source: str) -> None:
    arn = arn_of(sqs, queue)

    handle = sqs.start_message_move_task(SourceArn=arn)["TaskHandle"]

    assert handle
    task = wait_for_end(sqs, arn)
    assert task["Status"] == "COMPLETED"
    assert task["SourceArn"] == arn
    assert task["ApproximateNumberOfMessagesMoved"] == 3
    assert task["StartedTimestamp"] > 1_700_000_000_000
    assert "TaskHandle" not in task  # the API Reference: only of a running task
    bodies: set[str] = set()
    while len(bodies) < 3:
        bodies.add(receive_one(sqs, source)["Body"])
    assert bodies == {"0", "1", "2"}


def test_dead_letters_move_to_another_queue(
    sqs: SqsClient, queue: str, source: str, make_queue: MakeQueue
) -> None:
    del source
    arn, other = arn_of(sqs, queue), make_queue()

    sqs.start_message_move_task(SourceArn=arn, DestinationArn=arn_of(sqs, other))

    task = wait_for_end(sqs, arn)
    assert task["DestinationArn"] == arn_of(sqs, other)
    assert len({receive_one(sqs, other)["Body"] for _ in range(3)}) == 3


def test_a_task_is_cancelled(sqs: SqsClient, queue: str, source: str) -> None:
    del source
    arn = arn_of(sqs, queue)
    handle = sqs.start_message_move_task(SourceArn=arn, MaxNumberOfMessagesPerSecond=1)[
        "TaskHandle"
    ]
    (running,) = sqs.list_message_move_tasks(SourceArn=arn)["Results"]
    assert running["Status"] == "RUNNING"
    assert running["TaskHandle"] == handle
    assert running["MaxNumberOfMessagesPerSecond"] == 1
    with fails_with("InvalidParameterValue", "already a task running"):
        sqs.start_message_move_task(SourceArn=arn)

    moved = sqs.cancel_message_move_task(TaskHandle=handle)["ApproximateNumberOfMessagesMoved"]

    assert 0 <= moved < 3
    assert wait_for_end(sqs, arn)["Status"] == "CANCELLED"


def test_what_cannot_be_moved(sqs: SqsClient, queue: str) -> None:
    with fails_with("ResourceNotFoundException", status=404):
        sqs.start_message_move_task(SourceArn=arn_of(sqs, queue) + "-missing")
    with fails_with("InvalidParameterValue", "Dead Letter Queue"):
        sqs.start_message_move_task(SourceArn=arn_of(sqs, queue))
    with fails_with("InvalidParameterValue"):
        sqs.start_message_move_task(SourceArn="nothing")
    with fails_with("InvalidParameterValue", "TaskHandle"):
        sqs.cancel_message_move_task(TaskHandle="bm90aGluZw==")
