"""Actions of message move tasks: redrives of dead-letter queues.

Shell: they ask brokers. A task is a redrive with an id; brokers remember the last ten of a queue.
What SQS returns and a redrive does not know, the ARN of the destination and the rate of the whole
queue, is in its note.
"""

import base64
import binascii
import uuid
from typing import Final

import msgspec

from tidelog.client.admin.queue_counts import DescribedQueue
from tidelog.client.admin.redrive_status import RedriveReport
from tidelog.client.queue.queue import Queue
from tidelog.gateway.sqs.actions.described import find
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.protocol.errors import (
    INVALID_PARAMETER_VALUE,
    RESOURCE_NOT_FOUND,
    SqsError,
    missing_parameter,
)
from tidelog.gateway.sqs.protocol.replies import (
    MessageMoveCancelled,
    MoveTask,
    MoveTasks,
    MoveTaskStarted,
)
from tidelog.gateway.sqs.protocol.requests import (
    CancelMessageMoveTaskCall,
    ListMessageMoveTasksCall,
    StartMessageMoveTaskCall,
)
from tidelog.wire.errors import InvalidRequestError, UnknownTopicError
from tidelog.wire.messages.redrives import RedriveStatus

TASKS_MAX: Final = 10
"""Tasks in an answer, and those that a queue remembers."""
RATE_MAX: Final = 500
"""Messages a second."""
NO_SOURCE: Final = "CouldNotDetermineMessageSource"
"""Failure of a task without a destination that found messages that never were dead letters."""
NO_DESTINATION: Final = "AWS.SimpleQueueService.NonExistentQueue"
"""Failure of a task whose destination, or the source of a message, was deleted."""

_ARN_PARTS: Final = 6


class _Handle(msgspec.Struct, frozen=True, rename="camel"):
    """Content of a task handle, which the cloud encodes as JSON in Base64, too."""

    task_id: str
    source_arn: str


class _Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """Note of the redrive of a task."""

    destination_arn: str | None = None
    rate: int | None = None


async def start_message_move_task(
    caller: Caller, call: StartMessageMoveTaskCall
) -> MoveTaskStarted:
    """Move the messages of a dead-letter queue to their sources, or to another queue.

    Raises:
        SqsError: A parameter is wrong, the source is no dead-letter queue, or a task is running.
    """
    rate = call.max_number_of_messages_per_second
    source = await _queue_of(caller, call.source_arn, "SourceArn")
    if not source.dead_letters_of:
        raise _invalid("Source queue must be configured as a Dead Letter Queue.")
    destination = await _destination_of(caller, call, source)
    if rate is not None and not 1 <= rate <= RATE_MAX:
        raise _out_of_range("MaxNumberOfMessagesPerSecond", RATE_MAX)
    queue = caller.state.queue(source.name)
    if await _active(queue):
        raise _is_running()
    task = uuid.UUID(bytes=queue.new_redrive_id(), version=4)
    note = _Note(call.destination_arn, rate)
    try:
        await queue.redrive(
            to_topic=None if destination is None else destination.topic,
            messages_per_s=None if rate is None else max(1, rate // len(source.partitions)),
            redrive_id=task.bytes,
            note=msgspec.json.encode(note).decode(),
            only_sources=destination is None,
        )
    except UnknownTopicError as error:
        raise _not_found("DestinationArn") from error
    except InvalidRequestError as error:
        # Most likely another task has begun meanwhile; this one may have begun in some partitions.
        await queue.cancel_redrive(task.bytes)
        if any(each.redrive_id != task.bytes for each in await _active(queue)):
            raise _is_running() from error
        raise
    return MoveTaskStarted(_handle(task, call.source_arn or ""))


async def _active(queue: Queue) -> list[RedriveReport]:
    """Return the redrives of a queue that are not over."""
    return [report for report in await queue.redrives() if not report.is_over]


async def _destination_of(
    caller: Caller, call: StartMessageMoveTaskCall, source: DescribedQueue
) -> DescribedQueue | None:
    """Return the destination that a task names; `None` without one.

    Raises:
        SqsError: It does not exist, or cannot take the messages.
    """
    if call.destination_arn is None:
        return None
    destination = await _queue_of(caller, call.destination_arn, "DestinationArn")
    if destination.name == source.name:
        raise _invalid("Source queue arn and destination queue arn cannot be the same.")
    if destination.is_fifo != source.is_fifo:
        raise _invalid("The source queue and destination queue must be of the same queue type.")
    return destination


async def list_message_move_tasks(caller: Caller, call: ListMessageMoveTasksCall) -> MoveTasks:
    """List the latest tasks of a dead-letter queue, the latest first; by default one.

    Raises:
        SqsError: A parameter is wrong, or there is no such queue.
    """
    count = 1 if call.max_results is None else call.max_results
    source = await _queue_of(caller, call.source_arn, "SourceArn")
    if not 1 <= count <= TASKS_MAX:
        raise _out_of_range("MaxResults", TASKS_MAX)
    reports = await caller.state.queue(source.name).redrives()
    return MoveTasks([task_of(each, call.source_arn or "") for each in reports[:count]])


async def cancel_message_move_task(
    caller: Caller, call: CancelMessageMoveTaskCall
) -> MessageMoveCancelled:
    """Cancel a task that is running; messages that have not been moved stay.

    Raises:
        SqsError: The handle is wrong, or the task is not running.
    """
    if not call.task_handle:
        raise missing_parameter("TaskHandle")
    task, source_arn = _read(call.task_handle)
    source = await _queue_of(caller, source_arn, "SourceArn")
    queue = caller.state.queue(source.name)
    for report in await queue.redrives():
        if _id_of(report) == task and _status_of(report) == "RUNNING":
            await queue.cancel_redrive(report.redrive_id)
            return MessageMoveCancelled(report.moved)
    raise SqsError(RESOURCE_NOT_FOUND, "Task does not exist.")


def task_of(report: RedriveReport, source_arn: str) -> MoveTask:
    """Return a task from the report of its redrive."""
    note = _note_of(report)
    status = _status_of(report)
    is_running = status == "RUNNING"
    return MoveTask(
        _handle(_id_of(report), source_arn) if is_running else None,
        status,
        source_arn,
        note.destination_arn,
        report.rate if note.rate is None else note.rate,
        report.moved,
        report.to_move,
        _failure_of(report),
        report.started_ms,
    )


def _status_of(report: RedriveReport) -> str:
    if report.status is RedriveStatus.RUNNING:
        return "RUNNING"
    if report.status is RedriveStatus.CANCELLED:
        return "CANCELLED" if report.is_over else "CANCELLING"
    if not report.is_over:
        return "RUNNING"
    return "COMPLETED" if _failure_of(report) is None else "FAILED"


def _failure_of(report: RedriveReport) -> str | None:
    if report.status is RedriveStatus.FAILED:
        return NO_DESTINATION
    has_filter = report.only_from is not None or report.to_topic_id is not None
    if report.status is RedriveStatus.COMPLETED and report.skipped and not has_filter:
        return NO_SOURCE
    return None


def _id_of(report: RedriveReport) -> uuid.UUID:
    """Return the id of a task; 0 for a redrive that a program started without an id."""
    redrive_id = report.redrive_id
    return uuid.UUID(bytes=redrive_id.rjust(16, b"\0")[-16:])


def _note_of(report: RedriveReport) -> _Note:
    """Return the note of a task; an empty one for a redrive that is not of SQS."""
    try:
        return msgspec.json.decode(report.note, type=_Note)
    except (msgspec.MsgspecError, RecursionError):
        return _Note()


def _handle(task: uuid.UUID, source_arn: str) -> str:
    return base64.b64encode(msgspec.json.encode(_Handle(str(task), source_arn))).decode()


def _read(handle: str) -> tuple[uuid.UUID, str]:
    """Return the id and the source of the task of a handle.

    Raises:
        SqsError: It is no handle.
    """
    try:
        content = msgspec.json.decode(base64.b64decode(handle, validate=True), type=_Handle)
        return uuid.UUID(content.task_id), content.source_arn
    except (binascii.Error, msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise _invalid("Value for parameter TaskHandle is invalid.") from error


async def _queue_of(caller: Caller, arn: str | None, parameter: str) -> DescribedQueue:
    """Return the queue of an ARN, which is one of the caller's account and region.

    Raises:
        SqsError: It is no ARN, or there is no such queue.
    """
    if arn is None:
        raise missing_parameter(parameter)
    if not arn.startswith("arn:") or len(arn.split(":")) != _ARN_PARTS:
        raise _invalid(
            f"You must use this format to specify the {parameter}:"
            " arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
        )
    scope = caller.scope
    is_own = arn.split(":")[3:5] == [scope.region, scope.account]
    name = scope.queue_of_arn(arn) if is_own else None
    found = None if name is None else await find(caller, name)
    if found is None:
        raise _not_found(parameter)
    return found


def _invalid(text: str) -> SqsError:
    return SqsError(INVALID_PARAMETER_VALUE, text)


def _out_of_range(parameter: str, most: int) -> SqsError:
    return _invalid(
        f"Value for parameter {parameter} is invalid. Reason: You must enter a number that's"
        f" between 1 and {most}."
    )


def _not_found(parameter: str) -> SqsError:
    text = f"The resource that you specified for the {parameter} parameter doesn't exist."
    return SqsError(RESOURCE_NOT_FOUND, text)


def _is_running() -> SqsError:
    return _invalid(
        "There is already a task running. Only one active task is allowed for a source queue arn"
        " at a given time."
    )
