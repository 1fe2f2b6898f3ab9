"""Processors of the blocking client."""

from collections.abc import Sequence
from contextvars import copy_context
from functools import partial
from typing import final

import trio

from tidelog.blocking.forwarding import Forwarding
from tidelog.client.consumer.fetch.record import Record
from tidelog.client.processing.config import ProcessorStatistics
from tidelog.client.processing.processor import Processor as AsyncProcessor
from tidelog.client.processing.transform import FunctionCalls, Transform, Transformed
from tidelog.wire.env.real.real_env import run_in_thread


@final
class Processor(Forwarding[AsyncProcessor]):
    """See `tidelog.Processor`."""

    @property
    def statistics(self) -> ProcessorStatistics:
        """Counts of what is committed."""
        return self._inner.statistics

    def stop(self) -> None:
        """Let `run` return after the record at work; callable from any thread."""
        self._thread.call_soon(self._inner.stop)

    def run(self) -> ProcessorStatistics:
        """Process until `stop`; see `tidelog.Processor.run`.

        An interrupt aborts open transactions, after the transform has returned.

        Raises:
            Exception: The error of the transform, or of `tidelog.Processor.run`.
        """
        return self._thread.call(self._inner.run)


def in_a_thread(calls: FunctionCalls) -> Transform:
    """Return a transform that calls a plain function in a thread."""
    # A limiter of its own: file reads and name lookups must not wait for it.
    limiter = trio.CapacityLimiter(1)

    async def transform(records: Sequence[Record]) -> Transformed:
        work = partial(copy_context().run, partial(calls.run_plain, records))
        return await run_in_thread(work, limiter)

    return transform
