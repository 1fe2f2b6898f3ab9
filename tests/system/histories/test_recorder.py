"""Tests of recorded histories: they are read back, and an operation without end is unknown."""

from itertools import count
from pathlib import Path

from tests.simulation.checkers.history import Operation, Outcome, Poll, Send
from tests.system.histories.recorder import (
    Recorder,
    acknowledged_count,
    load_events,
    operations_of,
)

SENT = Send("t/0", "a")
TOLD = Send("t/0", "a", 5)
READ = Poll({"t/0": [(5, "a")]})


def a_recorder(lines: list[bytes]) -> Recorder:
    ticks = count(1)
    return Recorder(lambda: float(next(ticks)), lines.append)


def test_operations_come_in_the_order_of_their_ends() -> None:
    recorder = a_recorder([])
    send = recorder.begin("writer", [SENT])
    poll = recorder.begin("reader", seeks=True)
    recorder.end(poll, "reader", Outcome.OK, steps=[READ])
    recorder.end(send, "writer", Outcome.OK, steps=[TOLD])

    assert operations_of(recorder.events) == [
        Operation("reader", Outcome.OK, [READ], 2.0, 3.0, seeks=True),
        Operation("writer", Outcome.OK, [TOLD], 1.0, 4.0),
    ]


def test_an_operation_without_an_end_is_unknown() -> None:
    recorder = a_recorder([])
    recorder.begin("writer", [SENT])

    (operation,) = operations_of(recorder.events)

    assert (operation.outcome, operation.steps) == (Outcome.UNKNOWN, [SENT])


def test_events_after_a_power_cut_do_not_count() -> None:
    recorder = a_recorder([])
    send = recorder.begin("writer", [SENT])
    moment = len(recorder.events)
    recorder.end(send, "writer", Outcome.OK, steps=[TOLD])
    recorder.begin("writer", [Send("t/0", "b")])

    recorder.forget_after(moment)

    (operation,) = operations_of(recorder.events)
    assert (operation.outcome, operation.steps) == (Outcome.UNKNOWN, [SENT])
    assert acknowledged_count([operation]) == 0


def test_a_file_has_the_same_events_up_to_its_last_complete_line(tmp_path: Path) -> None:
    lines: list[bytes] = []
    recorder = a_recorder(lines)
    send = recorder.begin("writer", [SENT])
    recorder.end(send, "writer", Outcome.OK, steps=[TOLD])
    recorder.begin("reader", seeks=True)
    path = tmp_path / "history.jsonl"
    path.write_bytes(b"".join(lines) + b'{"number": 3, "proc')

    assert load_events(path) == recorder.events
