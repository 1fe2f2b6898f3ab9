"""A topic that gets more partitions in the middle of all that goes on."""

from collections.abc import Callable
from typing import Final, Protocol, final

import trio

from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.machine.broker_host import TOPIC
from tidelog.client.admin.admin import Admin
from tidelog.wire.errors import InvalidTopicError, TidelogError

PARTITIONS_MAX: Final = 8
_ADDS_TWO: Final = 0.3


class Promise(Protocol):
    """Who checks that it is so."""

    def growing(self, count: int) -> None:
        """Somebody is about to ask for so many."""
        ...

    def seen(self, count: int, asked_at: float) -> None:
        """Somebody was told of so many who asked then."""
        ...


@final
class Growth:
    """How many partitions there are, for all that anybody was told; it never becomes less."""

    def __init__(self, count: int, promise: Promise, sometimes: Sometimes) -> None:
        """Begin with `count` partitions; `promise` is told of all that is asked for and seen."""
        self.count = count
        self.listeners: list[Callable[[int], None]] = []
        """Told how many there are now."""
        self._promise = promise
        self._sometimes = sometimes
        promise.growing(count)

    async def add(self, admin: Admin, dice: float) -> None:
        """Have one or two more."""
        count = self.count + (2 if dice < _ADDS_TWO else 1)
        if count > PARTITIONS_MAX:
            return
        asked_at = trio.current_time()
        self._promise.growing(count)
        try:
            await admin.add_partitions(TOPIC, count)
        except InvalidTopicError:
            return  # An earlier request had its effect meanwhile, and was for more.
        except TidelogError:
            self._sometimes.reached("growth unknown")
            raise
        self._sometimes.reached("partitions added")
        self.seen(count, asked_at)

    def seen(self, count: int, asked_at: float) -> None:
        """Take note of what somebody was told who asked then."""
        self._promise.seen(count, asked_at)
        if count > self.count:
            self.count = count
            for listener in self.listeners:
                listener(count)
