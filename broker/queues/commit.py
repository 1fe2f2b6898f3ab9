"""Waiting in a task until a decision is committed."""

from typing import Final, final

import trio

from wire.errors import BrokerError
from wire.produce import AckLevel

COMMIT_TIMEOUT_S: Final = 30.0
"""How long anybody waits for a decision to be committed."""


@final
class Commit:
    """Somebody who waits for a decision to be committed; see `broker.partition.AckWaiter`."""

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
