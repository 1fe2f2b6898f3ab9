"""Tests of a run's fingerprint, and of random streams by purpose."""

import pytest

from tests.simulation.machine.random_streams import RandomStreams
from tests.simulation.trace import Trace


def fingerprint(*lines: str, steps: int = 0) -> str:
    trace = Trace(lambda: 1.5)
    for line in lines:
        trace.note("node", line)
    for number in range(steps):
        trace.step(number)
    return trace.fingerprint()


def test_equal_runs_have_equal_fingerprints() -> None:
    assert fingerprint("a", "b", steps=1000) == fingerprint("a", "b", steps=1000)
    assert len({fingerprint("a", "b"), fingerprint("b", "a"), fingerprint("a", "b", steps=1)}) == 3


def test_lines_are_shown_and_steps_on_request() -> None:
    lines: list[str] = []
    for shows_steps in (False, True):
        trace = Trace(lambda: 1.5, show=lines.append, shows_steps=shows_steps)
        trace.spawned(0, "task")
        trace.step(0)
        trace.note("broker", "starts")

    assert lines == [
        "1.500000 broker starts",
        "1.500000 scheduler task 0 is task",
        "1.500000 scheduler step of 0",
        "1.500000 broker starts",
    ]


def test_an_address_in_a_line_is_refused() -> None:
    with pytest.raises(AssertionError, match="different in every process"):
        fingerprint(repr(object()))


def test_streams_of_one_seed_are_independent_and_repeatable() -> None:
    one, other = RandomStreams(1), RandomStreams(1)

    draws = [one.stream(purpose).random() for purpose in ("disk", "network")]

    assert other.stream("network").random() == draws[1]
    assert draws[0] != draws[1]
    assert RandomStreams(2).stream("disk").random() != draws[0]


def test_a_second_stream_for_one_purpose_is_refused() -> None:
    streams = RandomStreams(1)
    streams.stream("disk")

    with pytest.raises(AssertionError, match="second stream"):
        streams.stream("disk")
