"""Tests of the clock of a broker."""

from typing import final

import trio
from trio.testing import MockClock

from tidelog.coordinator.controller.broker_clock import BrokerClock
from tidelog.wire.messages.cluster import BrokerHeartbeatReply

START_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


@final
class WallClock:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.ms = START_MS

    def now_ms(self) -> int:
        return self.ms


def unheard(event: str, **fields: object) -> None:
    """Ignore an event."""


async def test_a_broker_that_is_alone_goes_by_its_wall_clock(mock_clock: MockClock) -> None:
    wall = WallClock()
    clock = BrokerClock(wall, unheard)
    clock.is_alone = True

    wall.ms += HOUR_MS
    mock_clock.jump(1.0)

    assert clock.now_ms() == START_MS + HOUR_MS
    assert clock.known_ms() == START_MS + HOUR_MS


async def test_a_broker_that_is_alone_no_longer_goes_on_from_its_last_time(
    mock_clock: MockClock,
) -> None:
    wall = WallClock()
    clock = BrokerClock(wall, unheard)
    clock.is_alone = True
    wall.ms += HOUR_MS
    mock_clock.jump(1.0)

    clock.is_alone = False
    wall.ms += HOUR_MS
    mock_clock.jump(1.0)

    assert clock.now_ms() == START_MS + HOUR_MS + 1000


async def test_the_first_agreed_time_counts_at_once_for_queues(mock_clock: MockClock) -> None:
    del mock_clock  # It stands still.
    clock = BrokerClock(WallClock(), unheard)
    assert clock.steady.now_ms() == START_MS

    agreed = BrokerHeartbeatReply(False, False, 0, agreed_ms=START_MS + HOUR_MS)
    clock.answered(agreed, sent_ms=int(trio.current_time() * 1000))

    assert clock.steady.now_ms() == START_MS + HOUR_MS


async def test_the_time_of_queues_goes_by_elapsed_time(mock_clock: MockClock) -> None:
    wall = WallClock()
    clock = BrokerClock(wall, unheard)
    clock.is_alone = True
    assert clock.steady.now_ms() == START_MS

    wall.ms += HOUR_MS
    assert clock.steady.now_ms() == START_MS
    mock_clock.jump(1.0)

    assert START_MS + 1000 <= clock.steady.now_ms() <= START_MS + 1005
