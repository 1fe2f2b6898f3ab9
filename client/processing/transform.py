"""Calls of the application's transform, which turns input records into output records.

A `Transform` is what a processor awaits: the only place where it calls the application. Clients for
programs without trio pass one that runs elsewhere, such as in a thread.
"""

from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast, final

import msgspec

from tidelog.client.consumer.fetch.record import Record
from tidelog.client.producer.producer_record import ProducerRecord, checked_record
from tidelog.client.tracing.tracing import Tracing

Outputs = ProducerRecord | Iterable[ProducerRecord] | None
"""Output of one call: a record, several, or none."""
PlainFunction = Callable[[Any], Outputs]
"""Function of a record, or of a list of records."""
Function = Callable[[Any], Outputs | Awaitable[Outputs] | AsyncIterable[ProducerRecord]]
"""Function of a record or of a list of records: plain, async, or a generator of either kind."""

SLICE_S: Final = 0.02
"""Seconds after which a transform returns with a part of the records, so that others may run."""


@final
@dataclass(frozen=True, slots=True)
class Transformed:
    """Output of the first records of a call."""

    outputs: Sequence[ProducerRecord]
    count: int
    """Number of records that were transformed, from the first one on."""
    failure: Exception | None = None
    """Error of the record behind them."""


Transform = Callable[[Sequence[Record]], Awaitable[Transformed]]
"""Transforms the first records of several, at least one unless that fails."""


@final
class FunctionCalls:
    """Calls a function of the application for records, and collects its output.

    The output of a call counts as a whole or not at all.
    """

    def __init__(
        self,
        function: Function,
        *,
        is_batch: bool,
        is_isolating: bool,
        tracing: Tracing | None,
        now: Callable[[], float],
    ) -> None:
        """Call `function`.

        Args:
            function: Function of the application.
            is_batch: Whether it takes a list of records.
            is_isolating: Whether a list that fails is tried again record by record.
            tracing: Tracing of the client.
            now: Monotonic time in seconds, from any thread.
        """
        self._function = function
        self._is_batch = is_batch
        self._is_isolating = is_isolating
        self._tracing = tracing
        self._now = now

    async def run(self, records: Sequence[Record]) -> Transformed:
        """Transform records with a function of any kind; see `Transform`."""
        return await self._run(records, _collect)

    def run_plain(self, records: Sequence[Record]) -> Transformed:
        """Transform records with a plain function, in any thread."""
        steps = self._run(records, _collect_plain)
        try:
            steps.send(None)
        except StopIteration as end:
            return cast("Transformed", end.value)
        raise AssertionError("nothing in it waits")

    async def _run(
        self,
        records: Sequence[Record],
        collect: Callable[[object, list[ProducerRecord]], Awaitable[None]],
    ) -> Transformed:
        outputs: list[ProducerRecord] = []
        if self._is_batch:
            failure = await self._call(records, outputs, collect)
            if failure is None or not self._is_isolating:
                return Transformed(outputs, 0 if failure else len(records), failure)
        now, end = self._now, self._now() + SLICE_S
        for count, record in enumerate(records):
            if count and now() >= end:
                return Transformed(outputs, count)
            given = [record] if self._is_batch else record
            if self._tracing is None:
                failure = await self._call(given, outputs, collect)
            else:
                with self._tracing.process(record.topic, record) as span:
                    failure = await self._call(given, outputs, collect)
                    if failure is not None:
                        span.fail(failure)
            if failure is not None:
                return Transformed(outputs, count, failure)
        return Transformed(outputs, len(records))

    async def _call(
        self,
        given: Record | Sequence[Record],
        outputs: list[ProducerRecord],
        collect: Callable[[object, list[ProducerRecord]], Awaitable[None]],
    ) -> Exception | None:
        """Add the output of one call, or return its error."""
        first = len(outputs)
        try:
            found = self._function(given)
            if type(found) is ProducerRecord:  # The most frequent output, at a third of the cost.
                outputs.append(_checked(found))
            elif found is not None:
                await collect(found, outputs)
        except Exception as error:  # noqa: BLE001  (any error of the application)
            del outputs[first:]
            return error
        if self._tracing is not None:
            for at in range(first, len(outputs)):
                outputs[at] = _with_context(outputs[at], self._tracing)
        return None


async def _collect(found: object, outputs: list[ProducerRecord]) -> None:
    if isinstance(found, Awaitable):
        found = await cast("Awaitable[object]", found)
    if isinstance(found, AsyncIterable):
        outputs.extend([_checked(each) async for each in cast("AsyncIterable[object]", found)])
    else:
        _extend(outputs, found)


async def _collect_plain(found: object, outputs: list[ProducerRecord]) -> None:
    if isinstance(found, Coroutine):
        found.close()
        raise TypeError("a transform of the blocking client is a plain function, not an async one")
    _extend(outputs, found)


def _extend(outputs: list[ProducerRecord], found: object) -> None:
    if found is None:
        return
    if isinstance(found, ProducerRecord):
        outputs.append(_checked(found))
    elif isinstance(found, Iterable) and not isinstance(found, (bytes, str)):
        outputs.extend(map(_checked, cast("Iterable[object]", found)))
    else:
        raise TypeError(
            f"a transform returned {type(found).__name__}; it returns a ProducerRecord, an iterable"
            f" of them, or None"
        )


def _checked(output: object) -> ProducerRecord:
    """Return an output that can be encoded."""
    if type(output) is not ProducerRecord:
        raise TypeError(
            f"a transform made an output of type {type(output).__name__}; make a"
            f" ProducerRecord(topic, value)"
        )
    if (
        type(output.value) is bytes
        and (output.key is None or type(output.key) is bytes)
        and not output.headers
        and output.timestamp_ms is None
    ):
        return output
    return checked_record(
        output.topic,
        output.value,
        output.key,
        partition=output.partition,
        headers=output.headers,
        timestamp_ms=output.timestamp_ms,
    )


def _with_context(output: ProducerRecord, tracing: Tracing) -> ProducerRecord:
    headers = tracing.create(output.topic, output.headers)
    return output if headers is output.headers else msgspec.structs.replace(output, headers=headers)
