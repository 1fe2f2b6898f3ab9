"""`DeleteMessage`, `ChangeMessageVisibility`, and their batches.

Shell: settles by the client, which gathers the settlements of concurrent calls. A reply means that
the decision is committed.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

import trio

from tidelog.client.queue.queue import Queue
from tidelog.gateway.sqs.actions.failed_entries import failed_entries
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.message_checks import VISIBILITY_S_MAX, checked_batch
from tidelog.gateway.sqs.protocol.errors import (
    MESSAGE_NOT_INFLIGHT,
    RECEIPT_HANDLE_IS_INVALID,
    SqsError,
    invalid_value,
    missing_parameter,
)
from tidelog.gateway.sqs.protocol.replies import DONE, BatchDone, DoneEntry, SqsReply
from tidelog.gateway.sqs.protocol.requests import (
    ChangeMessageVisibilityBatchCall,
    ChangeMessageVisibilityCall,
    ChangeVisibilityEntry,
    DeleteMessageBatchCall,
    DeleteMessageCall,
)
from tidelog.wire.errors import (
    BatchError,
    InvalidReceiptError,
    InvalidRequestError,
    MessageGoneError,
    ReceiptExpiredError,
    TidelogError,
    UnknownPartitionError,
)

_UNAVAILABLE: Final = "Message does not exist or is not available for visibility timeout change."
_EXPIRED: Final = "The receipt handle has expired."
_TOO_LONG: Final = (
    f"Total VisibilityTimeout for the message is beyond the limit [{VISIBILITY_S_MAX} seconds]"
)
_OF_MESSAGES: Final = (
    InvalidReceiptError,
    InvalidRequestError,
    MessageGoneError,
    ReceiptExpiredError,
    UnknownPartitionError,
)
"""Errors that are those of a message, if a batch has only one."""


async def delete_message(caller: Caller, call: DeleteMessageCall) -> SqsReply:
    """Delete a message.

    Raises:
        SqsError: The handle is not valid, or has expired in a FIFO queue, or there is no such
            queue.
    """
    queue = caller.state.queue(caller.scope.queue_at(call.queue_url))
    handle = call.receipt_handle
    if not handle:
        raise missing_parameter("ReceiptHandle")
    try:
        await queue.delete(handle)
    except MessageGoneError:
        return DONE  # A dead letter by now: as SQS, the request succeeds.
    except _OF_MESSAGES as error:
        raise _delete_error(handle, error) from error
    return DONE


async def delete_message_batch(caller: Caller, call: DeleteMessageBatchCall) -> BatchDone:
    """Delete up to ten messages; each succeeds or fails alone.

    Raises:
        SqsError: The batch as a whole is not valid, or the queue does not exist.
    """
    queue = caller.state.queue(caller.scope.queue_at(call.queue_url))
    ids = checked_batch(call.entries, "DeleteMessageBatchRequestEntry")
    handles: dict[int, str] = {}
    failures: dict[int, TidelogError] = {}
    for place, entry in enumerate(call.entries or ()):
        if entry.receipt_handle:
            handles[place] = entry.receipt_handle
        else:
            failures[place] = missing_parameter("ReceiptHandle")
    errors = await _settled(queue.delete_batch, handles)
    for place, error in errors.items():
        if not isinstance(error, MessageGoneError):
            failures[place] = _delete_error(handles[place], error)
    return _batch_done(ids, failures)


async def change_message_visibility(caller: Caller, call: ChangeMessageVisibilityCall) -> SqsReply:
    """Set the time after which a message in flight becomes visible.

    Raises:
        SqsError: The handle or the timeout is not valid, the message is not in flight, or the queue
            does not exist.
    """
    queue = caller.state.queue(caller.scope.queue_at(call.queue_url))
    handle, seconds = _checked_change(call)
    try:
        await queue.change_visibility(handle, seconds)
    except _OF_MESSAGES as error:
        is_fifo = (await caller.state.facts(queue.name)).is_fifo
        raise _change_error(handle, seconds, error, is_fifo=is_fifo) from error
    return DONE


async def change_message_visibility_batch(
    caller: Caller, call: ChangeMessageVisibilityBatchCall
) -> BatchDone:
    """Set the times of up to ten messages; each succeeds or fails alone.

    Raises:
        SqsError: The batch as a whole is not valid, or the queue does not exist.
    """
    queue = caller.state.queue(caller.scope.queue_at(call.queue_url))
    ids = checked_batch(call.entries, "ChangeMessageVisibilityBatchRequestEntry")
    by_timeout: dict[int, dict[int, str]] = {}
    failures: dict[int, TidelogError] = {}
    for place, entry in enumerate(call.entries or ()):
        try:
            handle, seconds = _checked_change(entry)
        except SqsError as error:
            failures[place] = error
        else:
            by_timeout.setdefault(seconds, {})[place] = handle
    errors = await _changed(queue, by_timeout)
    if errors:
        is_fifo = (await caller.state.facts(queue.name)).is_fifo
        for seconds, handles in by_timeout.items():
            for place in handles.keys() & errors.keys():
                failures[place] = _change_error(
                    handles[place], seconds, errors[place], is_fifo=is_fifo
                )
    return _batch_done(ids, failures)


async def _changed(
    queue: Queue, by_timeout: Mapping[int, dict[int, str]]
) -> dict[int, TidelogError]:
    """Change the visibility of messages by timeout; return the errors by place in the batch.

    Raises:
        UnknownQueueError: There is no such queue.
        TidelogError: No broker answers.
    """
    errors: dict[int, TidelogError] = {}
    failures: list[TidelogError] = []

    async def change(seconds: int, handles: dict[int, str]) -> None:
        try:
            errors.update(
                await _settled(partial(queue.change_visibility_batch, seconds=seconds), handles)
            )
        except TidelogError as error:
            failures.append(error)

    async with trio.open_nursery() as nursery:
        # At once, so that all of them share a request.
        for seconds, handles in by_timeout.items():
            nursery.start_soon(change, seconds, handles)
    if failures:
        raise failures[0]
    return errors


async def _settled(
    settle: Callable[[Collection[str]], Awaitable[None]], handles: Mapping[int, str]
) -> dict[int, TidelogError]:
    """Settle messages; return the errors by place in the batch.

    Raises:
        UnknownQueueError: There is no such queue.
        TidelogError: No broker answers.
    """
    places = list(handles)
    try:
        await settle(handles.values())
    except BatchError as failure:
        return {places[index]: error for index, error in failure.errors.items()}
    except _OF_MESSAGES as error:
        return {places[0]: error}
    return {}


def _checked_change(
    change: ChangeMessageVisibilityCall | ChangeVisibilityEntry,
) -> tuple[str, int]:
    """Return handle and timeout.

    Raises:
        SqsError: One is missing, or the timeout is out of range.
    """
    if not change.receipt_handle:
        raise missing_parameter("ReceiptHandle")
    seconds = change.visibility_timeout
    if seconds is None:
        raise missing_parameter("VisibilityTimeout")
    if not 0 <= seconds <= VISIBILITY_S_MAX:
        reason = f"Must be >= 0 and <= {VISIBILITY_S_MAX}, if provided."
        raise invalid_value(seconds, "VisibilityTimeout", reason)
    return change.receipt_handle, seconds


def _batch_done(ids: Sequence[str], failures: Mapping[int, TidelogError]) -> BatchDone:
    done = [DoneEntry(entry_id) for place, entry_id in enumerate(ids) if place not in failures]
    return BatchDone(done or None, failed_entries(ids, failures) or None)


def _invalid_handle(handle: str) -> SqsError:
    text = f'The input receipt handle "{handle}" is not a valid receipt handle.'
    return SqsError(RECEIPT_HANDLE_IS_INVALID, text)


def _delete_error(handle: str, error: TidelogError) -> TidelogError:
    if isinstance(error, InvalidReceiptError | UnknownPartitionError):
        return _invalid_handle(handle)
    if isinstance(error, ReceiptExpiredError):
        return invalid_value(handle, "ReceiptHandle", _EXPIRED)
    return error


def _change_error(handle: str, seconds: int, error: TidelogError, *, is_fifo: bool) -> TidelogError:
    if isinstance(error, InvalidReceiptError | UnknownPartitionError):
        return _invalid_handle(handle)
    if isinstance(error, ReceiptExpiredError) and not is_fifo:
        return SqsError(MESSAGE_NOT_INFLIGHT, "The specified message isn't in flight.")
    if isinstance(error, MessageGoneError | ReceiptExpiredError):
        return invalid_value(handle, "ReceiptHandle", _UNAVAILABLE)
    if isinstance(error, InvalidRequestError):
        return invalid_value(seconds, "VisibilityTimeout", _TOO_LONG)
    return error
