"""What clients do and are told, as it happens: a history that can be written to a file and read.

Pure. An operation has two events, its beginning and its end. One without an end is one whose
outcome nobody knows, whatever became of the client. A file has one event in each line, as JSON.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import final

import msgspec

from tests.simulation.checkers.history import Operation, Outcome, Poll, Send


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """The beginning or the end of an operation."""

    number: int
    """Of the operation; its beginning and its end have the same."""
    process: str
    at: float
    """Seconds on a clock that does not jump."""
    outcome: Outcome | None = None
    """`None` at the beginning."""
    steps: list[Send | Poll] = []
    seeks: bool = False


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Event)


@final
class Recorder:
    """Takes down what several clients do, in one order."""

    def __init__(
        self, now: Callable[[], float], write: Callable[[bytes], object] | None = None
    ) -> None:
        """Hand every line to `write` too, before anything else happens."""
        self.events: list[Event] = []
        self._now = now
        self._write = write
        self._count = 0

    def begin(self, process: str, steps: Sequence[Send | Poll] = (), *, seeks: bool = False) -> int:
        """Take down that an operation begins; return its number."""
        self._count += 1
        self._add(Event(self._count, process, self._now(), None, list(steps), seeks))
        return self._count

    def end(self, number: int, process: str, outcome: Outcome, *, steps: list[Send | Poll]) -> None:
        """Take down how it ended."""
        self._add(Event(number, process, self._now(), outcome, steps))

    def forget_after(self, count: int) -> None:
        """Keep the first `count` events: the others came when the power was off already."""
        del self.events[count:]

    def _add(self, event: Event) -> None:
        self.events.append(event)
        if self._write is not None:
            self._write(_ENCODER.encode(event) + b"\n")


def load_events(path: Path) -> list[Event]:
    """Return the events of a file, without a last line that is not whole."""
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
    """Return how many values are known to have been acknowledged."""
    return sum(
        len([step for step in operation.steps if isinstance(step, Send)])
        for operation in operations
        if operation.outcome is Outcome.OK
    )
