"""What is known of a message that was received, delayed or passed over.

Pure: a declaration.
"""

from enum import IntEnum
from typing import Final, final

import msgspec


class Kind(IntEnum):
    """Who has a message; together with the time that says in which state it is."""

    WAITING = 0
    """Nobody: visible from a time on, delayed before."""
    LEASED = 1
    """A consumer, until a time; visible after."""
    DEAD = 2
    """The queue itself, which is moving it or keeps it."""


@final
class MessageStatus(msgspec.Struct, frozen=True, gc=False):
    """The status of a message; those that follow each other share one if it is equal."""

    kind: Kind = Kind.WAITING
    visible_at_ms: int = 0
    """Unix milliseconds; of no meaning for dead letters."""
    receive_count: int = 0
    first_received_ms: int = 0
    """0 while `receive_count` is."""
    last_received_ms: int = 0
    lease_id: int = 0
    """Of the last receive; 0 if there was none."""
    holder: str = ""
    """Who received it last, for people."""
    reason: str = ""
    """Why it was released or given up last."""

    def changed(
        self, kind: Kind, visible_at_ms: int, *, reason: str | None = None
    ) -> "MessageStatus":
        """Return it for somebody else, or for another time; `None`: the reason stays."""
        return MessageStatus(
            kind,
            visible_at_ms,
            self.receive_count,
            self.first_received_ms,
            self.last_received_ms,
            self.lease_id,
            self.holder,
            self.reason if reason is None else reason,
        )


SKIPPED: Final = MessageStatus()
"""Of messages that the cursor passed without anybody getting them: visible, never received."""
