"""`SendMessage` and `SendMessageBatch`.

Shell: checks messages, and sends them by the client, which gathers the sends of concurrent calls. A
reply means that the messages are committed.
"""

import hashlib
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, final

from tidelog.client.producer.receipt import Receipt
from tidelog.client.queue.send.message_fields import OutgoingMessage
from tidelog.gateway.sqs.actions.failed_entries import failed_entries
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.known_queues import QueueFacts
from tidelog.gateway.sqs.md5 import md5_of_attributes, md5_of_body
from tidelog.gateway.sqs.message_checks import (
    MESSAGE_BYTES_MAX,
    check_attributes,
    check_batch_size,
    check_delay,
    check_id,
    checked_batch,
    checked_body,
    checked_trace,
    invalid,
    size_of,
    too_long,
)
from tidelog.gateway.sqs.message_record import message_id_of, record_of_message, sequence_number_of
from tidelog.gateway.sqs.protocol.errors import SqsError, invalid_value, missing_parameter
from tidelog.gateway.sqs.protocol.replies import BatchSent, MessageSent, SentEntry
from tidelog.gateway.sqs.protocol.requests import SendEntry, SendMessageBatchCall, SendMessageCall
from tidelog.gateway.sqs.shared import FrontState
from tidelog.wire.errors import BatchError, TidelogError

_WRONG_TYPE: Final = "The request include parameter that is not valid for this queue type."
_NO_DEDUPLICATION: Final = (
    "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId"
    " provided explicitly"
)


Sendable = SendMessageCall | SendEntry
"""A message of a request."""


@final
class _Draft(NamedTuple):
    """A message that is valid for some queue."""

    given: Sendable
    value: bytes
    size: int
    """Bytes of the body and the attributes."""
    trace: str | None


async def send_message(caller: Caller, call: SendMessageCall) -> MessageSent:
    """Send a message.

    Raises:
        SqsError: The message is not valid, or the queue does not exist or accept it.
    """
    name = caller.scope.queue_at(call.queue_url)
    draft = _draft(call)
    facts = await _fitting(caller.state, name, [draft])
    message = _outgoing(caller, facts, draft)
    try:
        (receipt,) = await caller.state.queue(name).send_batch((message,))
    except BatchError as failure:
        raise failure.errors[0] from failure
    attributes, system_attributes = call.message_attributes, call.message_system_attributes
    return MessageSent(
        md5_of_body(draft.value),
        md5_of_attributes(attributes) if attributes else None,
        md5_of_attributes(system_attributes) if system_attributes else None,
        _id_of(receipt),
        _sequence_of(facts, receipt),
    )


async def send_message_batch(caller: Caller, call: SendMessageBatchCall) -> BatchSent:
    """Send up to ten messages; each succeeds or fails alone.

    Raises:
        SqsError: The batch as a whole is not valid, or the queue does not exist.
    """
    name = caller.scope.queue_at(call.queue_url)
    ids = checked_batch(call.entries, "SendMessageBatchRequestEntry")
    entries = call.entries or []
    check_batch_size(map(_size_of, entries))
    drafts: dict[int, _Draft] = {}
    errors: dict[int, TidelogError] = {}
    for place, entry in enumerate(entries):
        try:
            drafts[place] = _draft(entry)
        except SqsError as error:
            errors[place] = error
    facts = await _fitting(caller.state, name, drafts.values())
    _check_fifo_batch(facts, entries)
    messages: dict[int, OutgoingMessage] = {}
    for place, draft in drafts.items():
        try:
            messages[place] = _outgoing(caller, facts, draft)
        except SqsError as error:
            errors[place] = error
    places = list(messages)
    receipts: dict[int, Receipt] = {}
    try:
        found = await caller.state.queue(name).send_batch(messages.values())
        receipts.update(zip(places, found, strict=True))
    except BatchError as failure:
        receipts.update((places[index], each) for index, each in failure.receipts.items())
        errors.update((places[index], each) for index, each in failure.errors.items())
    sent = [
        _sent_entry(ids[place], drafts[place], facts, receipt=receipts[place])
        for place in sorted(receipts)
    ]
    return BatchSent(sent or None, failed_entries(ids, errors) or None)


def _draft(given: Sendable) -> _Draft:
    """Return a checked message.

    Raises:
        SqsError: It is not valid for any queue.
    """
    value = checked_body(given.message_body)
    size = len(value)
    if given.message_attributes:
        size += size_of(given.message_attributes)
        check_attributes(given.message_attributes)
    trace = None
    if given.message_system_attributes:
        trace = checked_trace(given.message_system_attributes)
    if size > MESSAGE_BYTES_MAX:
        raise too_long()
    check_delay(given.delay_seconds)
    check_id(given.message_deduplication_id, "MessageDeduplicationId")
    check_id(given.message_group_id, "MessageGroupId")
    return _Draft(given, value, size, trace)


def _size_of(entry: SendEntry) -> int:
    body = (entry.message_body or "").encode("utf-8", "surrogatepass")
    return len(body) + size_of(entry.message_attributes)


async def _fitting(state: FrontState, name: str, drafts: Collection[_Draft]) -> QueueFacts:
    """Return what is known about a queue; ask again before it refuses one of the messages."""
    facts = state.known(name) or await state.facts(name)
    if not _fits(facts, drafts):
        state.change(name)
        facts = await state.facts(name)
    return facts


def _fits(facts: QueueFacts, drafts: Collection[_Draft]) -> bool:
    for draft in drafts:
        if draft.size > facts.max_message_bytes:
            return False
        if facts.is_fifo and draft.given.message_deduplication_id is None:
            return facts.config.content_based_deduplication
    return True


def _check_fifo_batch(facts: QueueFacts, entries: Sequence[SendEntry]) -> None:
    """Check what a FIFO queue needs; SQS refuses the batch as a whole without it.

    Raises:
        SqsError: A message lacks an id.
    """
    if not facts.is_fifo:
        return
    for entry in entries:
        if not entry.message_group_id:
            raise invalid(missing_parameter("MessageGroupId").message)
        if not entry.message_deduplication_id and not facts.config.content_based_deduplication:
            raise invalid(_NO_DEDUPLICATION)


def _outgoing(caller: Caller, facts: QueueFacts, draft: _Draft) -> OutgoingMessage:
    """Return the message for a queue.

    Raises:
        SqsError: The queue does not accept it.
    """
    given, limit = draft.given, facts.max_message_bytes
    if draft.size > limit:
        raise too_long(limit, is_entry=isinstance(given, SendEntry))
    delay, group = given.delay_seconds, given.message_group_id
    deduplication_id = given.message_deduplication_id
    if facts.is_fifo:
        if delay:
            raise invalid_value(delay, "DelaySeconds", _WRONG_TYPE)
        if group is None:
            raise missing_parameter("MessageGroupId")
        if deduplication_id is None:
            if not facts.config.content_based_deduplication:
                raise invalid(_NO_DEDUPLICATION)
            deduplication_id = hashlib.sha256(draft.value).hexdigest()
        delay = None
    elif deduplication_id is not None:
        raise invalid_value(deduplication_id, "MessageDeduplicationId", _WRONG_TYPE)
    parts = record_of_message(
        draft.value, given.message_attributes, sender=caller.sender, trace=draft.trace
    )
    return OutgoingMessage(
        parts.value,
        key=None if group is None else group.encode(),
        headers=parts.headers,
        delay=delay,
        deduplication_id=deduplication_id,
    )


def _sent_entry(entry_id: str, draft: _Draft, facts: QueueFacts, *, receipt: Receipt) -> SentEntry:
    given = draft.given
    attributes, system_attributes = given.message_attributes, given.message_system_attributes
    return SentEntry(
        entry_id,
        _id_of(receipt),
        md5_of_body(draft.value),
        md5_of_attributes(attributes) if attributes else None,
        md5_of_attributes(system_attributes) if system_attributes else None,
        _sequence_of(facts, receipt),
    )


def _id_of(receipt: Receipt) -> str:
    offset = receipt.offset
    # A broker that has forgotten where it has a repeated message tells no place.
    place = -1 if offset is None else offset
    return message_id_of(receipt.topic_id, receipt.partition, place)


def _sequence_of(facts: QueueFacts, receipt: Receipt) -> str | None:
    if not facts.is_fifo or receipt.offset is None:
        return None
    return sequence_number_of(receipt.offset)
