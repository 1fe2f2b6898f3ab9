"""Celery on the SQS front, unmodified: retries, a task at a time of its own (ETA), and a chord.

Start a broker with a front, then a worker, and then this program:

    tidelog serve --sqs-listen 127.0.0.1:9324
    export AWS_ENDPOINT_URL=http://127.0.0.1:9324 AWS_DEFAULT_REGION=us-east-1
    export AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any
    celery --app celery_orders worker
    python celery_orders.py
"""

import os
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from celery import Celery, Task, chord

RESULTS = Path(os.environ.get("RESULTS", Path(tempfile.gettempdir(), "celery-orders")))
RESULTS.mkdir(exist_ok=True)

# SQS keeps no results: Celery needs another place for them. Between machines, use Redis or SQL.
app = Celery("celery_orders", broker="sqs://", backend=RESULTS.as_uri())
app.conf.update(
    task_default_queue="celery-orders",
    task_acks_late=True,  # a task of a worker that dies comes again ...
    broker_transport_options={
        "visibility_timeout": 60,  # ... after so many seconds; longer than the longest task
        "wait_time_seconds": 20,  # long polls
        "polling_interval": 0,  # and no pause between them
    },
    worker_enable_remote_control=False,  # SQS has no broadcasts
)


@app.task(bind=True, autoretry_for=(ConnectionError,), retry_backoff=1, retry_jitter=False)
def charge(self: "Task[[int], str]", order: int) -> str:
    """Charge a customer; the bank is reached at the second attempt."""
    if self.request.retries == 0:
        raise ConnectionError("the bank does not answer")
    return f"order {order} is charged after {self.request.retries} retry"


@app.task
def pack(order: int) -> int:
    """Pack an order; return its weight."""
    return 100 * order


@app.task
def ship(weights: list[int]) -> str:
    """Ship all packets together."""
    return f"{len(weights)} packets of {sum(weights)} g are shipped"


@app.task
def remind(sent_at: str) -> str:
    """Send a reminder at its time."""
    waited = datetime.now(UTC) - datetime.fromisoformat(sent_at)
    return f"the reminder came after {round(waited.total_seconds())} s"


def main() -> None:
    """Send tasks of all kinds, and print their results."""
    now = datetime.now(UTC)
    reminded = remind.apply_async((now.isoformat(),), eta=now + timedelta(seconds=3))
    charged = charge.delay(17)
    shipped = chord(pack.s(order) for order in range(1, 11))(ship.s())
    for result in (charged, shipped, reminded):
        print(result.get())


if __name__ == "__main__":
    main()
