"""Replies of the actions, as both protocols carry them (Amazon SQS API Reference).

Pure: declarations. Both protocols leave out what is `None`: the cloud leaves out empty lists and
maps, so an action replies `None` for them.
"""

import msgspec

from tidelog.gateway.sqs.protocol.requests import Attributes, MessageAttributes


class SqsReply(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """Base of all replies. An action without a result returns `DONE`."""


DONE = SqsReply()


class FailedEntry(msgspec.Struct, frozen=True, rename="pascal"):
    """One entry of a batch that failed (`BatchResultErrorEntry`)."""

    id: str
    sender_fault: bool
    code: str
    """Code of the query protocol, in both protocols, except where the vendor documents another."""
    message: str


class DoneEntry(msgspec.Struct, frozen=True, rename="pascal"):
    """One entry of a batch that succeeded and has no result."""

    id: str


class BatchDone(SqsReply, frozen=True):
    """Results of a `DeleteMessageBatch` or `ChangeMessageVisibilityBatch`."""

    successful: list[DoneEntry] | None = None
    failed: list[FailedEntry] | None = None


class MessageMoveCancelled(SqsReply, frozen=True):
    """Result of a `CancelMessageMoveTask`."""

    approximate_number_of_messages_moved: int | None = None


class QueueLocated(SqsReply, frozen=True):
    """Result of a `CreateQueue` or `GetQueueUrl`."""

    queue_url: str | None = None


class QueueAttributes(SqsReply, frozen=True):
    """Result of a `GetQueueAttributes`."""

    attributes: Attributes | None = None


class SourceQueues(SqsReply, frozen=True):
    """Result of a `ListDeadLetterSourceQueues`."""

    queue_urls: list[str] | None = msgspec.field(default=None, name="queueUrls")
    next_token: str | None = None


class MoveTask(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """One message move task."""

    task_handle: str | None = None
    status: str | None = None
    source_arn: str | None = None
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None
    approximate_number_of_messages_moved: int | None = None
    approximate_number_of_messages_to_move: int | None = None
    failure_reason: str | None = None
    started_timestamp: int | None = None
    """Unix milliseconds."""


class MoveTasks(SqsReply, frozen=True):
    """Result of a `ListMessageMoveTasks`."""

    results: list[MoveTask] | None = None


class QueuesListed(SqsReply, frozen=True):
    """Result of a `ListQueues`."""

    queue_urls: list[str] | None = None
    next_token: str | None = None


class QueueTags(SqsReply, frozen=True):
    """Result of a `ListQueueTags`."""

    tags: dict[str, str] | None = None


class ReceivedMessage(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """One received message."""

    message_id: str
    receipt_handle: str
    md5_of_body: str = msgspec.field(name="MD5OfBody")
    body: str
    attributes: Attributes | None = None
    md5_of_message_attributes: str | None = msgspec.field(
        default=None, name="MD5OfMessageAttributes"
    )
    message_attributes: MessageAttributes | None = None


class MessagesReceived(SqsReply, frozen=True):
    """Result of a `ReceiveMessage`."""

    messages: list[ReceivedMessage] | None = None


class MessageSent(SqsReply, frozen=True):
    """Result of a `SendMessage`."""

    md5_of_message_body: str | None = msgspec.field(default=None, name="MD5OfMessageBody")
    md5_of_message_attributes: str | None = msgspec.field(
        default=None, name="MD5OfMessageAttributes"
    )
    md5_of_message_system_attributes: str | None = msgspec.field(
        default=None, name="MD5OfMessageSystemAttributes"
    )
    message_id: str | None = None
    sequence_number: str | None = None


class SentEntry(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """One message of a `SendMessageBatch` that was sent."""

    id: str
    message_id: str
    md5_of_message_body: str = msgspec.field(name="MD5OfMessageBody")
    md5_of_message_attributes: str | None = msgspec.field(
        default=None, name="MD5OfMessageAttributes"
    )
    md5_of_message_system_attributes: str | None = msgspec.field(
        default=None, name="MD5OfMessageSystemAttributes"
    )
    sequence_number: str | None = None


class BatchSent(SqsReply, frozen=True):
    """Results of a `SendMessageBatch`."""

    successful: list[SentEntry] | None = None
    failed: list[FailedEntry] | None = None


class MoveTaskStarted(SqsReply, frozen=True):
    """Result of a `StartMessageMoveTask`."""

    task_handle: str | None = None
