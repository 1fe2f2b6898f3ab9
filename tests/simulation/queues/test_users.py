"""When a user says that it asked for a message."""

# pyright: reportPrivateUsage=false

from types import SimpleNamespace
from typing import cast

import trio
from trio.testing import MockClock

from tests.simulation.queues.users import SendTimes
from tidelog.client.queue.queue import Queue


async def test_a_message_may_come_by_a_request_that_an_earlier_receive_has_left(
    autojump_clock: MockClock,
) -> None:
    del autojump_clock
    left_polls: dict[str, None] = {}
    queue = SimpleNamespace(_receiver=SimpleNamespace(left_polls=left_polls))
    send_times = SendTimes(cast("Queue", queue))
    first = send_times.of_next_receive()
    left_polls["of the first receive"] = None
    await trio.sleep(1)

    assert send_times.of_next_receive() == first

    await trio.sleep(1)
    left_polls["of the second receive"] = None
    assert send_times.of_next_receive() == first
    left_polls.clear()
    assert send_times.of_next_receive() == first + 2
