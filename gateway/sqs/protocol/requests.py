"""Requests of the 23 actions, as both protocols carry them (Amazon SQS API Reference).

Pure: declarations. A parameter that a request leaves out is `None`: the actions check what they
need, since each has an error of its own. Names on the wire are those of the API, such as
`QueueUrl`.
"""

import msgspec

Attributes = dict[str, str]


class SqsCall(msgspec.Struct, frozen=True, rename="pascal"):
    """Base of all requests; `SendMessageCall` is the request of `SendMessage`."""


class MessageAttribute(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """Value of a message attribute, or of a message system attribute."""

    data_type: str | None = None
    """`String`, `Number` or `Binary`, perhaps with a label of the sender: `Number.int`."""
    string_value: str | None = None
    binary_value: bytes | None = None
    """Base64 in JSON."""
    string_list_values: list[str] | None = None
    binary_list_values: list[bytes] | None = None


MessageAttributes = dict[str, MessageAttribute]


class AddPermissionCall(SqsCall, frozen=True):
    """Let accounts use a queue."""

    queue_url: str | None = None
    label: str | None = None
    aws_account_ids: list[str] | None = msgspec.field(default=None, name="AWSAccountIds")
    actions: list[str] | None = None


class CancelMessageMoveTaskCall(SqsCall, frozen=True):
    """Cancel a message move task."""

    task_handle: str | None = None


class ChangeMessageVisibilityCall(SqsCall, frozen=True):
    """Set the visibility timeout of a message in flight."""

    queue_url: str | None = None
    receipt_handle: str | None = None
    visibility_timeout: int | None = None


class ChangeVisibilityEntry(msgspec.Struct, frozen=True, rename="pascal"):
    """One message of a `ChangeMessageVisibilityBatch`."""

    id: str | None = None
    receipt_handle: str | None = None
    visibility_timeout: int | None = None


class ChangeMessageVisibilityBatchCall(SqsCall, frozen=True):
    """Set the visibility timeouts of up to ten messages."""

    queue_url: str | None = None
    entries: list[ChangeVisibilityEntry] | None = None


class CreateQueueCall(SqsCall, frozen=True):
    """Create a queue."""

    queue_name: str | None = None
    attributes: Attributes | None = None
    tags: dict[str, str] | None = msgspec.field(default=None, name="tags")


class DeleteMessageCall(SqsCall, frozen=True):
    """Delete a message."""

    queue_url: str | None = None
    receipt_handle: str | None = None


class DeleteEntry(msgspec.Struct, frozen=True, rename="pascal"):
    """One message of a `DeleteMessageBatch`."""

    id: str | None = None
    receipt_handle: str | None = None


class DeleteMessageBatchCall(SqsCall, frozen=True):
    """Delete up to ten messages."""

    queue_url: str | None = None
    entries: list[DeleteEntry] | None = None


class DeleteQueueCall(SqsCall, frozen=True):
    """Delete a queue with its messages."""

    queue_url: str | None = None


class GetQueueAttributesCall(SqsCall, frozen=True):
    """Ask for attributes of a queue."""

    queue_url: str | None = None
    attribute_names: list[str] | None = None


class GetQueueUrlCall(SqsCall, frozen=True):
    """Ask for the URL of a queue."""

    queue_name: str | None = None
    queue_owner_aws_account_id: str | None = msgspec.field(
        default=None, name="QueueOwnerAWSAccountId"
    )


class ListDeadLetterSourceQueuesCall(SqsCall, frozen=True):
    """List the queues whose dead-letter queue is this one."""

    queue_url: str | None = None
    max_results: int | None = None
    next_token: str | None = None


class ListMessageMoveTasksCall(SqsCall, frozen=True):
    """List the latest message move tasks of a dead-letter queue."""

    source_arn: str | None = None
    max_results: int | None = None


class ListQueuesCall(SqsCall, frozen=True):
    """List queues."""

    queue_name_prefix: str | None = None
    max_results: int | None = None
    next_token: str | None = None


class ListQueueTagsCall(SqsCall, frozen=True):
    """List the tags of a queue."""

    queue_url: str | None = None


class PurgeQueueCall(SqsCall, frozen=True):
    """Delete all messages of a queue."""

    queue_url: str | None = None


class ReceiveMessageCall(SqsCall, frozen=True):
    """Receive up to ten messages."""

    queue_url: str | None = None
    attribute_names: list[str] | None = None
    """The older name of `message_system_attribute_names`."""
    message_system_attribute_names: list[str] | None = None
    message_attribute_names: list[str] | None = None
    max_number_of_messages: int | None = None
    visibility_timeout: int | None = None
    wait_time_seconds: int | None = None
    receive_request_attempt_id: str | None = None


class RemovePermissionCall(SqsCall, frozen=True):
    """Remove a statement that `AddPermission` added."""

    queue_url: str | None = None
    label: str | None = None


class SendMessageCall(SqsCall, frozen=True):
    """Send a message."""

    queue_url: str | None = None
    message_body: str | None = None
    delay_seconds: int | None = None
    message_attributes: MessageAttributes | None = None
    message_system_attributes: MessageAttributes | None = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendEntry(msgspec.Struct, frozen=True, rename="pascal"):
    """One message of a `SendMessageBatch`."""

    id: str | None = None
    message_body: str | None = None
    delay_seconds: int | None = None
    message_attributes: MessageAttributes | None = None
    message_system_attributes: MessageAttributes | None = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendMessageBatchCall(SqsCall, frozen=True):
    """Send up to ten messages."""

    queue_url: str | None = None
    entries: list[SendEntry] | None = None


class SetQueueAttributesCall(SqsCall, frozen=True):
    """Set attributes of a queue."""

    queue_url: str | None = None
    attributes: Attributes | None = None


class StartMessageMoveTaskCall(SqsCall, frozen=True):
    """Move the messages of a dead-letter queue to their sources, or to another queue."""

    source_arn: str | None = None
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None


class TagQueueCall(SqsCall, frozen=True):
    """Set tags of a queue."""

    queue_url: str | None = None
    tags: dict[str, str] | None = None


class UntagQueueCall(SqsCall, frozen=True):
    """Remove tags of a queue."""

    queue_url: str | None = None
    tag_keys: list[str] | None = None
