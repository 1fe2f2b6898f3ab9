"""Waits of a task: until the state for a decision is known, and until a decision is committed."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, final

import trio

from tidelog.wire.errors import BrokerError, LeaderNotAvailableError
from tidelog.wire.messages.produce import AckLevel

COMMIT_TIMEOUT_S: Final = 30.0
"""Maximum time in seconds to wait for the commit of a decision."""
DECISION_TIMEOUT_S: Final = 10.0
"""Maximum age in seconds of a request when it is executed."""


@contextmanager
def deciding_until(deadline: float) -> Generator[None]:
    """Limit the wait for the state that a decision needs, until a time of trio's clock.

    Raises:
        LeaderNotAvailableError: The state was not known in time.
    """
    with trio.move_on_at(deadline) as waiting:
        yield
    # A read in a thread is not cancelled, and may end after the deadline.
    if waiting.cancelled_caught or trio.current_time() >= deadline:
        raise LeaderNotAvailableError(
            "the partition's messages were not loaded in time; nothing was changed, try again"
        )


@final
class CommitWait:
    """A wait for the commit of a decision; see `broker.partitions.partition.AckWaiter`."""

    def __init__(self) -> None:
        """Start without a result."""
        self._is_known = trio.Event()
        self._error: BrokerError | None = None

    def acknowledged(self, index: int, level: AckLevel) -> None:
        """Record that the decision is committed."""
        del index, level
        self._is_known.set()

    def failed(self, index: int, error: BrokerError) -> None:
        """Record that the outcome is unknown."""
        del index
        self._error = error
        self._is_known.set()

    async def wait(self) -> None:
        """Wait until the outcome is known.

        Raises:
            BrokerError: The reason that the outcome is unknown.
        """
        await self._is_known.wait()
        if self._error is not None:
            raise self._error
