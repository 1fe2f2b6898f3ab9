"""Errors of the outbox and its relay.

Pure: declarations.
"""

from typing import final

from tidelog.wire.errors import TidelogError


class OutboxError(TidelogError):
    """The relay cannot go on; one line says why, and what to do."""


@final
class DatabaseUnavailableError(OutboxError):
    """The database cannot be reached or is busy; the same call may succeed later."""


@final
class OutboxRowError(OutboxError):
    """A row cannot be sent; the relay stops at it."""

    def __init__(self, message: str, *, row_id: int) -> None:
        """Create the error; `row_id` is the value of the column `id`."""
        super().__init__(message)
        self.row_id = row_id


@final
class RelayPositionError(OutboxError):
    """The position in the database and that of the cluster contradict each other."""


@final
class RelaySupersededError(OutboxError):
    """Another relay has gone on with this table; this one must read the position again."""
