"""Ends of long waits, which come together."""

import pytest

from tidelog.gateway.sqs.actions.receive import aligned


@pytest.mark.parametrize("wait_s", [0.0, 0.25, 0.999])
def test_a_short_wait_is_as_asked(wait_s: float) -> None:
    assert aligned(wait_s, now=17.03) == wait_s


def test_long_waits_are_never_shorter_and_end_together() -> None:
    starts = [1234.01 + number / 1000 for number in range(80)]

    waits = [aligned(20.0, now=now) for now in starts]

    assert all(20.0 - 1e-9 <= wait < 20.1 for wait in waits)
    assert {round(now + wait, 6) for now, wait in zip(starts, waits, strict=True)} == {1254.1}
