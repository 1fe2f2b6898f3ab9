"""`ReceiveMessage`.

Shell: receives by the client, which gathers the receives of concurrent calls. If the call is
cancelled, nothing stays in flight, except under a receive attempt id.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, final

from tidelog.client.queue.queue import Queue
from tidelog.client.queue.receive.message import Message, Origin
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.md5 import md5_of_attributes, md5_of_body
from tidelog.gateway.sqs.message_checks import VISIBILITY_S_MAX, WAIT_S_MAX, check_id
from tidelog.gateway.sqs.message_record import (
    ENCODING_ATTRIBUTE,
    SENDER_HEADER,
    TRACE_HEADER,
    attributes_in,
    body_of,
    header_in,
    message_id_of,
    message_of_record,
    moved_message_id,
    sequence_number_of,
)
from tidelog.gateway.sqs.names import QueueScope
from tidelog.gateway.sqs.protocol.errors import invalid_value
from tidelog.gateway.sqs.protocol.replies import MessagesReceived, ReceivedMessage
from tidelog.gateway.sqs.protocol.requests import (
    MessageAttribute,
    MessageAttributes,
    ReceiveMessageCall,
)
from tidelog.wire.batch.record_batch import Headers
from tidelog.wire.errors import MessageBodyLostError, RecordTooLargeError, TidelogError
from tidelog.wire.messages.queues import DEDUPLICATION_ID_HEADER

_COUNT_MAX: Final = 10
_ALL: Final = "All"
_ALL_NAMES: Final = (_ALL, "*")
"""Names that ask for all message attributes; the cloud knows `*` too."""
_ALL_PATTERN: Final = ".*"
_WRONG_TYPE: Final = "The request include parameter that is not valid for this queue type."
_SYSTEM_NAMES: Final = (
    "AWSTraceHeader",
    "ApproximateFirstReceiveTimestamp",
    "ApproximateReceiveCount",
    "DeadLetterQueueSourceArn",
    "MessageDeduplicationId",
    "MessageGroupId",
    "SenderId",
    "SentTimestamp",
    "SequenceNumber",
)
"""The system attributes of a message, as `All` asks for them."""


@final
class _Wanted(NamedTuple):
    """What a receive asks for besides bodies."""

    system: frozenset[str]
    names: frozenset[str]
    """Names of message attributes."""
    prefixes: tuple[str, ...]
    """Prefixes of the names of message attributes; an empty one stands for all."""


async def receive_message(caller: Caller, call: ReceiveMessageCall) -> MessagesReceived:
    """Receive up to ten messages.

    Raises:
        SqsError: A parameter is not valid, the queue does not exist, or too many of its messages
            are in flight.
    """
    name = caller.scope.queue_at(call.queue_url)
    _check(call)
    queue = caller.state.queue(name)
    facts = caller.state.known(name) or await caller.state.facts(name)
    attempt_id = call.receive_request_attempt_id
    if attempt_id is not None and not facts.is_fifo:
        raise invalid_value(attempt_id, "ReceiveRequestAttemptId", _WRONG_TYPE)
    wait_s: float | None = call.wait_time_seconds
    if wait_s is None:
        # Not left to the client, whose description of the queue may be half a minute old.
        wait_s = facts.config.receive_message_wait_time_ms / 1000
    messages = await queue.receive(
        1 if call.max_number_of_messages is None else call.max_number_of_messages,
        visibility_timeout=call.visibility_timeout,
        # As given: the client gathers receives with equal waits, and lets long ones end together.
        wait=wait_s,
        # As SQS: a FIFO queue at its limit has no messages, but no error either.
        raise_at_limit=not facts.is_fifo,
        attempt_id=attempt_id,
    )
    if not messages:
        return MessagesReceived()
    wanted = _wanted(call)
    received: list[ReceivedMessage] = []
    for message in messages:
        try:
            received.append(_received(caller.scope, message, wanted, is_fifo=facts.is_fifo))
        except (RecordTooLargeError, MessageBodyLostError) as error:
            await _reject(queue, message, error)
    return MessagesReceived(received or None)


def _check(call: ReceiveMessageCall) -> None:
    """Check the parameters.

    Raises:
        SqsError: One is out of range.
    """
    count, wait_s = call.max_number_of_messages, call.wait_time_seconds
    visibility_s, attempt_id = call.visibility_timeout, call.receive_request_attempt_id
    if count is not None and not 1 <= count <= _COUNT_MAX:
        reason = f"Must be between 1 and {_COUNT_MAX}, if provided."
        raise invalid_value(count, "MaxNumberOfMessages", reason)
    if wait_s is not None and not 0 <= wait_s <= WAIT_S_MAX:
        reason = f"Must be >= 0 and <= {WAIT_S_MAX}, if provided."
        raise invalid_value(wait_s, "WaitTimeSeconds", reason)
    if visibility_s is not None and not 0 <= visibility_s <= VISIBILITY_S_MAX:
        reason = f"Must be >= 0 and <= {VISIBILITY_S_MAX}, if provided."
        raise invalid_value(visibility_s, "VisibilityTimeout", reason)
    check_id(attempt_id, "ReceiveRequestAttemptId")


def _wanted(call: ReceiveMessageCall) -> _Wanted:
    """Return which attributes a receive asks for. As SQS: names that none can have are ignored."""
    system = {*(call.attribute_names or ()), *(call.message_system_attribute_names or ())}
    if _ALL in system:
        system.update(_SYSTEM_NAMES)
    names: set[str] = set()
    prefixes: list[str] = []
    for name in call.message_attribute_names or ():
        if name in _ALL_NAMES:
            prefixes.append("")
        elif name.endswith(_ALL_PATTERN):
            prefixes.append(name.removesuffix(_ALL_PATTERN))
        else:
            names.add(name)
    return _Wanted(frozenset(system), frozenset(names), tuple(prefixes))


async def _reject(queue: Queue, message: Message, error: TidelogError) -> None:
    """Make a message a dead letter that no receive can deliver; else it would come for ever."""
    await queue.reject(message, f"the SQS front cannot deliver it: {error}")


def _received(
    scope: QueueScope, message: Message, wanted: _Wanted, *, is_fifo: bool
) -> ReceivedMessage:
    """Return a message as SQS has it.

    Raises:
        RecordTooLargeError: It is too large for one reply.
        MessageBodyLostError: The topic has deleted a part of it.
    """
    value, headers = message_of_record(message.value or b"", message.headers)
    body, is_encoded = body_of(value)
    origin = message.origin if headers else None
    first_id = None if origin is None else moved_message_id(headers)
    attributes: Mapping[str, str] | None = None
    if wanted.system:
        attributes = _system_attributes(scope, message, origin, is_fifo=is_fifo)
        attributes = {name: attributes[name] for name in attributes if name in wanted.system}
    chosen: MessageAttributes | None = None
    if wanted.names or wanted.prefixes:
        chosen = _chosen(headers, wanted, is_encoded=is_encoded)
    return ReceivedMessage(
        first_id or message_id_of(message.topic_id, message.partition, message.offset),
        message.receipt_handle,
        md5_of_body(body.encode() if is_encoded else value),
        body,
        dict(attributes) if attributes else None,
        md5_of_attributes(chosen) if chosen else None,
        chosen or None,
    )


def _chosen(headers: Headers, wanted: _Wanted, *, is_encoded: bool) -> MessageAttributes:
    found = attributes_in(headers)
    if is_encoded:
        found[ENCODING_ATTRIBUTE] = MessageAttribute("String", string_value="base64")
    return {
        name: attribute
        for name, attribute in found.items()
        if name in wanted.names or name.startswith(wanted.prefixes)
    }


def _system_attributes(
    scope: QueueScope, message: Message, origin: Origin | None, *, is_fifo: bool
) -> dict[str, str]:
    """Return all system attributes of a message."""
    headers = message.headers
    count, first_received_ms = message.receive_count, message.first_received_ms
    sent_ms = message.timestamp_ms
    found: dict[str, str] = {}
    if origin is not None:
        # Deliveries count over all queues; a FIFO queue begins a new age with the move.
        count += origin.receive_count
        first_received_ms = origin.first_received_ms or first_received_ms
        sent_ms = sent_ms if is_fifo else origin.first_sent_ms or sent_ms
        found["DeadLetterQueueSourceArn"] = scope.arn_of_queue(origin.queue)
    if message.key is not None:
        found["MessageGroupId"] = message.key.decode("utf-8", "replace")
    found["ApproximateReceiveCount"] = str(count)
    found["ApproximateFirstReceiveTimestamp"] = str(first_received_ms)
    found["SentTimestamp"] = str(sent_ms)
    if is_fifo:
        found["SequenceNumber"] = sequence_number_of(message.offset)
    if headers:
        for name, header in (
            ("SenderId", SENDER_HEADER),
            ("AWSTraceHeader", TRACE_HEADER),
            ("MessageDeduplicationId", DEDUPLICATION_ID_HEADER),
        ):
            text = header_in(headers, header)
            if text is not None:
                found[name] = text
    return found
