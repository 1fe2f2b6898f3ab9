"""Actions of message move tasks, with what Amazon SQS answers to the same requests."""

import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from tests.gateway.sqs.callers import open_caller
from tidelog.gateway.sqs.actions.move_tasks import (
    cancel_message_move_task,
    list_message_move_tasks,
    start_message_move_task,
)
from tidelog.gateway.sqs.actions.queues import create_queue, delete_queue
from tidelog.gateway.sqs.actions.registry import Action
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.protocol.errors import (
    INVALID_PARAMETER_VALUE,
    MISSING_PARAMETER,
    RESOURCE_NOT_FOUND,
    ErrorShape,
    SqsError,
)
from tidelog.gateway.sqs.protocol.replies import MoveTask
from tidelog.gateway.sqs.protocol.requests import (
    CancelMessageMoveTaskCall,
    CreateQueueCall,
    DeleteQueueCall,
    ListMessageMoveTasksCall,
    SqsCall,
    StartMessageMoveTaskCall,
)

RUNNING = (
    "There is already a task running. Only one active task is allowed for a source queue arn at a"
    " given time."
)
BETWEEN = (
    "Value for parameter {} is invalid. Reason: You must enter a number that's between 1 and {}."
)
FORMAT = (
    "You must use this format to specify the {}:"
    " arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
)


class Pipe(NamedTuple):
    """A queue, and its dead-letter queue."""

    caller: Caller
    dead_arn: str
    work_url: str

    def arn(self, name: str) -> str:
        return self.caller.scope.arn_of(name)

    async def create(self, name: str, attributes: dict[str, str] | None = None) -> str:
        await create_queue(self.caller, CreateQueueCall(name, attributes))
        return self.arn(name)

    async def die(self, count: int) -> None:
        """Make so many dead letters."""
        queue = self.caller.client.queue("work")
        await queue.send_batch([b"message %d" % each for each in range(count)])
        left = count
        while left:
            for message in await queue.receive(10, wait=5):
                await message.reject("no")
                left -= 1

    async def start(self, destination_arn: str | None = None, rate: int | None = None) -> str:
        call = StartMessageMoveTaskCall(self.dead_arn, destination_arn, rate)
        handle = (await start_message_move_task(self.caller, call)).task_handle
        assert handle is not None
        return handle

    async def tasks(self, max_results: int | None = None) -> list[MoveTask]:
        call = ListMessageMoveTasksCall(self.dead_arn, max_results)
        results = (await list_message_move_tasks(self.caller, call)).results
        assert results is not None
        return results

    async def end(self) -> MoveTask:
        """Return the latest task when it has ended."""
        while True:
            (task,) = await self.tasks()
            if task.status not in {"RUNNING", "CANCELLING"}:
                return task
            await trio.sleep(0.01)

    async def counts(self, name: str) -> int:
        counts = await self.caller.client.queue(name).counts()
        return sum(each.visible for each in counts)


@asynccontextmanager
async def open_pipe(tmp_path: Path) -> AsyncGenerator[Pipe, None]:
    async with open_caller(tmp_path) as caller:
        await create_queue(caller, CreateQueueCall("dead"))
        dead_arn = caller.scope.arn_of("dead")
        policy = json.dumps({"deadLetterTargetArn": dead_arn, "maxReceiveCount": 3})
        call = CreateQueueCall("work", {"RedrivePolicy": policy})
        url = (await create_queue(caller, call)).queue_url
        assert url is not None
        yield Pipe(caller, dead_arn, url)


ACTIONS: dict[type[SqsCall], Action] = {
    StartMessageMoveTaskCall: start_message_move_task,
    ListMessageMoveTasksCall: list_message_move_tasks,
    CancelMessageMoveTaskCall: cancel_message_move_task,
}


async def refusal(caller: Caller, call: SqsCall) -> tuple[ErrorShape, str]:
    with pytest.raises(SqsError) as raised:
        await ACTIONS[type(call)](caller, call)
    return raised.value.shape, raised.value.message


def handle_of(task_id: str, source_arn: str) -> str:
    content = {"taskId": task_id, "sourceArn": source_arn}
    return base64.b64encode(json.dumps(content).encode()).decode()


async def test_a_task_moves_dead_letters_to_their_source(tmp_path: Path) -> None:
    async with open_pipe(tmp_path) as pipe:
        await pipe.die(3)

        handle = await pipe.start()

        task = await pipe.end()
        assert task == MoveTask(
            status="COMPLETED",
            source_arn=pipe.dead_arn,
            approximate_number_of_messages_moved=3,
            approximate_number_of_messages_to_move=3,
            started_timestamp=task.started_timestamp,
        )
        assert json.loads(base64.b64decode(handle))["sourceArn"] == pipe.dead_arn
        assert (await pipe.counts("work"), await pipe.counts("dead")) == (3, 0)


async def test_a_task_moves_messages_to_another_queue(tmp_path: Path) -> None:
    async with open_pipe(tmp_path) as pipe:
        other_arn = await pipe.create("other")
        await pipe.die(2)
        await pipe.caller.client.queue("dead").send(b"never was a dead letter")

        await pipe.start(other_arn, 500)

        task = await pipe.end()
        assert (task.status, task.destination_arn) == ("COMPLETED", other_arn)
        assert task.max_number_of_messages_per_second == 500
        assert (await pipe.counts("other"), await pipe.counts("work")) == (3, 0)


async def test_one_task_of_a_queue_runs_at_a_time_and_can_be_cancelled(tmp_path: Path) -> None:
    async with open_pipe(tmp_path) as pipe:
        await pipe.die(5)
        handle = await pipe.start(None, 1)

        (running,) = await pipe.tasks()
        assert (running.status, running.task_handle) == ("RUNNING", handle)
        assert await refusal(pipe.caller, StartMessageMoveTaskCall(pipe.dead_arn)) == (
            INVALID_PARAMETER_VALUE,
            RUNNING,
        )
        cancel = CancelMessageMoveTaskCall(handle)
        reply = await cancel_message_move_task(pipe.caller, cancel)
        assert reply.approximate_number_of_messages_moved is not None

        task = await pipe.end()
        assert (task.status, task.task_handle) == ("CANCELLED", None)
        assert task.approximate_number_of_messages_to_move == 5
        assert await pipe.counts("dead") >= 3
        assert (await refusal(pipe.caller, cancel))[1] == "Task does not exist."


async def test_a_queue_lists_its_last_ten_tasks_the_latest_first(tmp_path: Path) -> None:
    async with open_pipe(tmp_path) as pipe:
        assert await pipe.tasks() == []
        for rate in range(1, 13):
            await pipe.start(None, rate)
            await pipe.end()

        tasks = await pipe.tasks(10)

        assert [each.max_number_of_messages_per_second for each in tasks] == list(range(12, 2, -1))
        assert len(await pipe.tasks()) == 1


async def test_a_task_fails_when_its_destination_is_deleted(tmp_path: Path) -> None:
    async with open_pipe(tmp_path) as pipe:
        other_arn = await pipe.create("other")
        await pipe.die(5)
        await pipe.start(other_arn, 1)

        url = pipe.caller.scope.url_of("other")
        await delete_queue(pipe.caller, DeleteQueueCall(url))

        task = await pipe.end()
        assert task.status == "FAILED"
        assert task.failure_reason == "AWS.SimpleQueueService.NonExistentQueue"
        assert task.destination_arn == other_arn
        assert await pipe.counts("dead") >= 3


@pytest.mark.difference(
    "Move tasks",
    cloud="A task without a destination fails when it meets a message that was sent to the"
    " dead-letter queue directly.",
    here="It moves all other messages first, and fails then with the same reason,"
    " `CouldNotDetermineMessageSource`.",
    why="One such message should not keep the others.",
)
async def test_a_task_fails_for_messages_that_never_were_dead_letters(tmp_path: Path) -> None:
    async with open_pipe(tmp_path) as pipe:
        await pipe.caller.client.queue("dead").send(b"direct")
        await pipe.die(1)

        await pipe.start()

        task = await pipe.end()
        assert (task.status, task.failure_reason) == ("FAILED", "CouldNotDetermineMessageSource")
        assert task.approximate_number_of_messages_moved == 1
        assert (await pipe.counts("dead"), await pipe.counts("work")) == (1, 1)


@pytest.mark.difference(
    "Move tasks",
    cloud="A moved message is in its destination queue only.",
    here="It is a new record of the topic of that queue, so every other queue on the topic gets"
    " it too. Queues that the front created have topics of their own.",
    why="A message is a record, and a record is a message of each queue on its topic.",
)
async def test_every_queue_on_the_topic_gets_a_moved_message(tmp_path: Path) -> None:
    async with open_pipe(tmp_path) as pipe:
        await pipe.die(1)
        await pipe.caller.client.admin.create_queue("audit", topic="work", start="latest")

        await pipe.start()

        await pipe.end()
        assert (await pipe.counts("work"), await pipe.counts("audit")) == (1, 1)


@pytest.mark.difference(
    "Move tasks",
    cloud="Tasks are those of `StartMessageMoveTask`.",
    here="A redrive that another program of tidelog started is a task as well: it is listed, and"
    " may be cancelled.",
    why="A queue has one redrive at a time, and any program may start it.",
)
async def test_a_redrive_of_another_program_is_a_task(tmp_path: Path) -> None:
    async with open_pipe(tmp_path) as pipe:
        await pipe.die(5)
        note = '{"deep": ' + "[" * 1000
        await pipe.caller.client.queue("dead").redrive(messages_per_s=1, note=note)

        (task,) = await pipe.tasks()
        assert (task.status, task.max_number_of_messages_per_second) == ("RUNNING", 1)
        assert task.task_handle is not None
        await cancel_message_move_task(pipe.caller, CancelMessageMoveTaskCall(task.task_handle))

        assert (await pipe.end()).status == "CANCELLED"


START, LIST, CANCEL = StartMessageMoveTaskCall, ListMessageMoveTasksCall, CancelMessageMoveTaskCall
PREFIX = "arn:aws:sqs:us-east-1:000000000000"
DEAD, WORK, NOPE = f"{PREFIX}:dead", f"{PREFIX}:work", f"{PREFIX}:nope"
DEEP = base64.b64encode(b'{"deep": ' + b"[" * 5000).decode()
TASK_ID = "10f57157-fc38-4da9-a113-4de7e12d05dd"
MISSING = "The request must contain the parameter {}."
NOT_FOUND = "The resource that you specified for the {} parameter doesn't exist."
SAME = "Source queue arn and destination queue arn cannot be the same."
KINDS = "The source queue and destination queue must be of the same queue type."
WRONG: list[tuple[SqsCall, ErrorShape, str]] = [
    (START(), MISSING_PARAMETER, MISSING.format("SourceArn")),
    (START(""), INVALID_PARAMETER_VALUE, FORMAT.format("SourceArn")),
    (START(DEAD, "work"), INVALID_PARAMETER_VALUE, FORMAT.format("DestinationArn")),
    (START(NOPE), RESOURCE_NOT_FOUND, NOT_FOUND.format("SourceArn")),
    (START(DEAD, NOPE), RESOURCE_NOT_FOUND, NOT_FOUND.format("DestinationArn")),
    (
        START(DEAD.replace("us-east-1", "eu-west-1")),
        RESOURCE_NOT_FOUND,
        NOT_FOUND.format("SourceArn"),
    ),
    (
        START(WORK),
        INVALID_PARAMETER_VALUE,
        "Source queue must be configured as a Dead Letter Queue.",
    ),
    (START(DEAD, DEAD), INVALID_PARAMETER_VALUE, SAME),
    (START(DEAD, f"{WORK}.fifo"), INVALID_PARAMETER_VALUE, KINDS),
    *(
        (
            START(DEAD, None, rate),
            INVALID_PARAMETER_VALUE,
            BETWEEN.format("MaxNumberOfMessagesPerSecond", 500),
        )
        for rate in (0, 501)
    ),
    (LIST(DEAD, 11), INVALID_PARAMETER_VALUE, BETWEEN.format("MaxResults", 10)),
    (CANCEL(), MISSING_PARAMETER, MISSING.format("TaskHandle")),
    *(
        (CANCEL(handle), INVALID_PARAMETER_VALUE, "Value for parameter TaskHandle is invalid.")
        for handle in ("foobared", handle_of("7", DEAD), DEEP)
    ),
    (CANCEL(handle_of(TASK_ID, NOPE)), RESOURCE_NOT_FOUND, NOT_FOUND.format("SourceArn")),
    (CANCEL(handle_of(TASK_ID, DEAD)), RESOURCE_NOT_FOUND, "Task does not exist."),
]


async def test_wrong_parameters_of_a_task_are_refused(tmp_path: Path) -> None:
    async with open_pipe(tmp_path) as pipe:
        await pipe.create("work.fifo", {"FifoQueue": "true"})

        found = [await refusal(pipe.caller, call) for call, _, _ in WRONG]

        assert found == [(shape, text) for _, shape, text in WRONG]
