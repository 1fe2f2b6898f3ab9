"""Celery application of the trial: each task notes in a ledger that it has run.

`python -m tests.system.sqs_trials.celery_tasks COUNT` sends as many tasks.
"""

import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import time  # noqa: TID251  (other processes compare it)
from typing import Final

from celery import Celery, Task, chord
from celery.signals import task_received
from celery.worker.request import Request

VISIBILITY_S: Final = 10
FOLDER: Final = Path(os.environ["TRIAL_FOLDER"])
LEDGER: Final = FOLDER / "ledger"

app = Celery(
    "tests.system.sqs_trials.celery_tasks",
    broker="sqs://",
    backend=(FOLDER / "results").as_uri(),
)
app.conf.update(
    task_default_queue="trial",
    task_acks_late=True,
    worker_enable_remote_control=False,
    worker_concurrency=2,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={
        "visibility_timeout": VISIBILITY_S,
        "wait_time_seconds": 5,
        "polling_interval": 0,
        "fetch_message_attributes": ["ApproximateFirstReceiveTimestamp"],
    },
)


def _note(**line: object) -> None:
    """Append a line; one write to a file that is open for appending is whole."""
    with LEDGER.open("ab", buffering=0) as file:
        file.write(json.dumps({**line, "at": time()}).encode() + b"\n")


@task_received.connect
def note_delivery(request: Request, **_more: object) -> None:
    """Note a message that a worker has received; its tasks do not see it."""
    message = request.message.delivery_info["sqs_message"]
    attributes = message["Attributes"]
    _note(
        message=message["MessageId"],
        count=int(attributes["ApproximateReceiveCount"]),
        first=int(attributes["ApproximateFirstReceiveTimestamp"]) / 1000,
    )


@app.task
def work(number: int) -> int:
    """Note a number."""
    _note(number=number)
    return number


@app.task(bind=True, autoretry_for=(ConnectionError,), retry_backoff=1, retry_jitter=False)
def work_later(self: "Task[..., int]", number: int) -> int:
    """Note a number at the second attempt."""
    if self.request.retries == 0:
        raise ConnectionError("the first attempt fails")
    _note(number=number)
    return number


@app.task
def add_all(numbers: list[int]) -> int:
    """Add what the tasks of a chord have returned."""
    return sum(numbers)


def send(count: int) -> None:
    """Send tasks: every seventh fails once, every fifth has a time of its own."""
    for number in range(count):
        if number % 7 == 0:
            publish(work_later, number)
        elif number % 5 == 0:
            publish(work, number, eta=datetime.fromtimestamp(time(), UTC) + timedelta(seconds=3))
        else:
            publish(work, number)


def publish(task: "Task[..., int]", number: int, eta: datetime | None = None) -> None:
    """Send a task; repeat it until the front has acknowledged it."""
    policy = {"max_retries": None, "interval_start": 0, "interval_step": 0.2, "interval_max": 1}
    task.apply_async((number,), retry=True, retry_policy=policy, eta=eta)


def run_chord(count: int) -> int:
    """Return the result of a chord."""
    return int(chord(work.s(number) for number in range(count))(add_all.s()).get())


if __name__ == "__main__":
    send(int(sys.argv[1]))
