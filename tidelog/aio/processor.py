"""Processors for asyncio."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import final

from tidelog.aio.forwarding import ClientGuest, Forwarding
from tidelog.client.consumer.fetch.record import Record
from tidelog.client.processing.config import ProcessorStatistics
from tidelog.client.processing.processor import Processor as InnerProcessor
from tidelog.client.processing.transform import FunctionCalls, Transform, Transformed


@final
class Processor(Forwarding[InnerProcessor]):
    """See `tidelog.Processor`."""

    @property
    def statistics(self) -> ProcessorStatistics:
        """Counts of what is committed."""
        return self._inner.statistics

    def stop(self) -> None:
        """Let `run` return in order, for instance from a signal handler."""
        self._here.stop()

    async def run(self) -> ProcessorStatistics:
        """Process until `stop`; see `tidelog.Processor.run`."""
        return await self._guest.call(self._inner.run)


def on_host(guest: ClientGuest) -> Callable[[FunctionCalls], Transform]:
    """Return what makes a transform that runs in a task of asyncio."""

    def through(calls: FunctionCalls) -> Transform:
        def transform(records: Sequence[Record]) -> Awaitable[Transformed]:
            return guest.call_host(partial(calls.run, records))

        return transform

    return through
