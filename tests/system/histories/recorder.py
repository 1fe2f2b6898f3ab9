"""Recorder of a history: operations of clients and their outcomes, in memory and in a file.

Pure. An operation has two events, its beginning and its end. The outcome of an operation without an
end is unknown. A file has one event in each line, as JSON.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import final

import msgspec

from tests.simulation.checkers.history import Operation, Outcome, Poll, Send


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """The beginning or the end of an operation."""

    number: int
    """Number of the operation; the same for its beginning and its end."""
    process: str
    at: float
    """Seconds of a monotonic clock."""
    outcome: Outcome | None = None
    """`None` at the beginning."""
    steps: list[Send | Poll] = []
    seeks: bool = False


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Event)


@final
class Recorder:
    """Records the operations of several clients, in one order."""

    def __init__(
        self, now: Callable[[], float], write: Callable[[bytes], object] | None = None
    ) -> None:
        """Pass every line to `write` too, before anything else happens."""
        self.events: list[Event] = []
        self._now = now
        self._write = write
        self._count = 0

    def begin(self, process: str, steps: Sequence[Send | Poll] = (), *, seeks: bool = False) -> int:
        """Record the beginning of an operation; return its number."""
        self._count += 1
        self._add(Event(self._count, process, self._now(), None, list(steps), seeks))
        return self._count

    def end(self, number: int, process: str, outcome: Outcome, *, steps: list[Send | Poll]) -> None:
        """Record the end of an operation."""
        self._add(Event(number, process, self._now(), outcome, steps))

    def forget_after(self, count: int) -> None:
        """Keep the first `count` events: the others came after the power cut."""
        del self.events[count:]

    def _add(self, event: Event) -> None:
        self.events.append(event)
        if self._write is not None:
            self._write(_ENCODER.encode(event) + b"\n")


def load_events(path: Path) -> list[Event]:
    """Return the events of a file, without an incomplete last line."""
    *lines, _ = path.read_bytes().split(b"\n")
    return [_DECODER.decode(line) for line in lines]


def operations_of(events: Iterable[Event]) -> list[Operation]:
    """Return the operations in the order of their ends, those without an end last."""
    begun: dict[int, Event] = {}
    ended: list[Operation] = []
    for event in events:
        if event.outcome is None:
            begun[event.number] = event
            continue
        first = begun.pop(event.number)
        ended.append(
            Operation(
                event.process, event.outcome, event.steps, first.at, event.at, seeks=first.seeks
            )
        )
    ended.extend(
        Operation(event.process, Outcome.UNKNOWN, event.steps, event.at, event.at, event.seeks)
        for event in begun.values()
    )
    return ended


def acknowledged_count(operations: Iterable[Operation]) -> int:
    """Return the number of values that are known to be acknowledged."""
    return sum(
        len([step for step in operation.steps if isinstance(step, Send)])
        for operation in operations
        if operation.outcome is Outcome.OK
    )
