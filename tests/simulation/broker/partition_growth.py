"""Growth of a topic to more partitions during a run."""

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
    """Checker of the partition count."""

    def growing(self, count: int) -> None:
        """Record that a client is about to ask for this partition count."""
        ...

    def seen(self, count: int, asked_at: float) -> None:
        """Record a partition count that a client received for its request at `asked_at`."""
        ...


@final
class Growth:
    """The largest partition count that any client has received; it never decreases."""

    def __init__(self, count: int, promise: Promise, sometimes: Sometimes) -> None:
        """Start with `count` partitions; `promise` receives all requests and observations."""
        self.count = count
        self.listeners: list[Callable[[int], None]] = []
        """Callbacks for a new partition count."""
        self._promise = promise
        self._sometimes = sometimes
        promise.growing(count)

    async def add(self, admin: Admin, dice: float) -> None:
        """Add one or two partitions."""
        count = self.count + (2 if dice < _ADDS_TWO else 1)
        if count > PARTITIONS_MAX:
            return
        asked_at = trio.current_time()
        self._promise.growing(count)
        try:
            await admin.add_partitions(TOPIC, count)
        except InvalidTopicError:
            return  # An earlier request has taken effect, and asked for more.
        except TidelogError:
            self._sometimes.reached("growth unknown")
            raise
        self._sometimes.reached("partitions added")
        self.seen(count, asked_at)

    def seen(self, count: int, asked_at: float) -> None:
        """Record a partition count that a client received for its request at `asked_at`."""
        self._promise.seen(count, asked_at)
        if count > self.count:
            self.count = count
            for listener in self.listeners:
                listener(count)
