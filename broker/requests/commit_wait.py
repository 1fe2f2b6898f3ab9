"""Waiting in a task: until something can be decided, and until a decision is committed."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, final

import trio

from tidelog.wire.errors import BrokerError, LeaderNotAvailableError
from tidelog.wire.messages.produce import AckLevel

COMMIT_TIMEOUT_S: Final = 30.0
"""How long anybody waits for a decision to be committed."""
DECISION_TIMEOUT_S: Final = 10.0
"""How long a request may be old when it is decided: much later nobody wishes for it any more."""


@contextmanager
def deciding_until(deadline: float) -> Generator[None]:
    """Wait inside for what has to be known, until a time of trio's clock.

    Raises:
        LeaderNotAvailableError: It was not known in time.
    """
    with trio.move_on_at(deadline) as waiting:
        yield
    # What a thread reads is waited for in any case.
    if waiting.cancelled_caught or trio.current_time() >= deadline:
        raise LeaderNotAvailableError(
            "the messages were not all known here in time; nothing was done"
        )


@final
class CommitWait:
    """A wait for the commit of a decision; see `broker.partitions.partition.AckWaiter`."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._is_known = trio.Event()
        self._error: BrokerError | None = None

    def acknowledged(self, index: int, level: AckLevel) -> None:
        """It is."""
        del index, level
        self._is_known.set()

    def failed(self, index: int, error: BrokerError) -> None:
        """Nobody knows."""
        del index
        self._error = error
        self._is_known.set()

    async def wait(self) -> None:
        """Wait until it is known.

        Raises:
            BrokerError: Why nobody knows.
        """
        await self._is_known.wait()
        if self._error is not None:
            raise self._error
