"""Writing what becomes visible together, for programs without trio.

Shell: calls run in the client's thread.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import final

from tidelog.blocking.thread import TrioThread
from tidelog.client.client import Client as TrioClient
from tidelog.client.config import ProducerConfig
from tidelog.client.producer.record_validation import OutgoingRecord
from tidelog.client.transactions.staging import StagedBatch as TrioStagedBatch
from tidelog.client.transactions.staging import StagedTask
from tidelog.client.transactions.staging import StagingTask as TrioStagingTask

_Thread = TrioThread[TrioClient]


@final
class StagedBatch:
    """See `tidelog.StagedBatch`."""

    def __init__(self, thread: _Thread, batch: TrioStagedBatch) -> None:
        """Use `client.staged(...)`."""
        self._thread = thread
        self._batch = batch

    def task(self, config: ProducerConfig | None = None) -> "StagingTask":
        """Return a task, to be used by `with`; see `tidelog.StagedBatch.task`."""
        return StagingTask(self._thread, self._batch.task(config))

    def commit(self, tasks: Iterable[StagedTask]) -> None:
        """Let what these tasks have staged become visible; see `tidelog.StagedBatch.commit`."""
        self._thread.call(partial(self._batch.commit, tasks))

    def abort(self) -> bool:
        """Drop what was staged, unless it is committed; see `tidelog.StagedBatch.abort`."""
        return self._thread.call(self._batch.abort)


@final
class StagingTask:
    """See `tidelog.StagingTask`."""

    def __init__(self, thread: _Thread, task: TrioStagingTask) -> None:
        """Use `batch.task()`."""
        self._thread = thread
        self._task = task

    def __enter__(self) -> "StagingTask":
        """Begin the batch, or go on with it; see `tidelog.StagingTask`."""
        self._thread.call(self._task.__aenter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop."""
        self._thread.call(partial(self._task.__aexit__, kind, error, traceback))

    @property
    def is_committed(self) -> bool:
        """Whether the batch was committed before: nothing more is staged."""
        return self._task.is_committed

    @property
    def result(self) -> StagedTask:
        """What was staged, after the block; see `tidelog.StagingTask.result`."""
        return self._task.result

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        partition: int | None = None,
    ) -> None:
        """Stage records and wait until they are safe; see `tidelog.StagingTask.send_many`."""
        self._thread.call(
            partial(self._task.send_many, topic, values, keys=keys, partition=partition)
        )

    def send_records(self, topic: str, records: Sequence[OutgoingRecord]) -> None:
        """Stage records with headers and times; see `tidelog.StagingTask.send_records`."""
        self._thread.call(partial(self._task.send_records, topic, records))
