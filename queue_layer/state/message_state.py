"""States of a message, and the transitions between them.

Pure: declarations. Each message of a partition is in one `MessageState` (`wire.messages.queues`):

| state | meaning | Kafka `SharePartition` | SQS |
|---|---|---|---|
| `VISIBLE` | The next receive may return it. | `AVAILABLE` | visible |
| `DELAYED` | It becomes visible at a later time. | (none) | delayed |
| `IN_FLIGHT` | A consumer has it until its visibility timeout ends. | `ACQUIRED` | in flight |
| `DEAD` | The queue keeps it as a dead letter and moves it to its target. | `ARCHIVED` | moved |
| deleted | It is deleted, moved, expired, purged or trimmed. | `ACKNOWLEDGED` | deleted |

`BLOCKED` is `VISIBLE` behind an invisible message of the same FIFO group; only browsing tells the
two apart. `TRANSITIONS` holds the changes that entries of the journal make; besides, every state
may change to deleted, and time alone changes `DELAYED` and `IN_FLIGHT` to `VISIBLE`.

Source of the state of a message:

- **Unreceived**: the message lies at or above the cursor (`QueueState.cursor`). No entry names it,
  and the log alone says whether it is `VISIBLE` or `DELAYED` (`state.unreceived`). A backlog of any
  length costs nothing.
- **Skipped**: the cursor has passed the message because a receive took one behind it, out of order
  or of another FIFO group. It has the status `SKIPPED` or, if it has a delivery time, that time.
- **Received**, skipped or released: the message lies below the cursor and has a `MessageStatus`.
  Neighbours of equal status form one **run** (`state.message_runs`).
- **Deleted**: the message lies below the cursor and is in no run.

A status holds the state without the time: `SnapshotState` and `visible_at_ms` together give the
`MessageState` (`MessageRuns.state`), so that no entry has to say when a lease ends.
"""

from enum import IntEnum
from typing import Final, final

import msgspec

from tidelog.wire.messages.queues import MessageState


class SnapshotState(IntEnum):
    """State of a message in the journal: the time decides about the rest."""

    AVAILABLE = 0
    """No consumer has it: it is visible from a time on, and delayed before."""
    IN_FLIGHT = 1
    """A consumer has it until a time; it is visible after."""
    DEAD = 2
    """The queue has it as a dead letter."""


@final
class MessageStatus(msgspec.Struct, frozen=True, gc=False):
    """Status of a message; consecutive messages share an equal one."""

    stored: SnapshotState = SnapshotState.AVAILABLE
    visible_at_ms: int = 0
    """Unix milliseconds; without meaning for dead letters."""
    receive_count: int = 0
    first_received_ms: int = 0
    """0 while `receive_count` is."""
    last_received_ms: int = 0
    lease_id: int = 0
    """Lease of the last receive; 0 without one."""
    holder: str = ""
    """Name of the consumer that received it last."""
    reason: str = ""
    """Reason of its last release or rejection."""

    def changed(
        self, stored: SnapshotState, visible_at_ms: int, *, reason: str | None = None
    ) -> "MessageStatus":
        """Return a copy with another state or time; with `None` the reason stays."""
        return MessageStatus(
            stored,
            visible_at_ms,
            self.receive_count,
            self.first_received_ms,
            self.last_received_ms,
            self.lease_id,
            self.holder,
            self.reason if reason is None else reason,
        )


SKIPPED: Final = MessageStatus()
"""The status of messages that the cursor passed and that were never received: visible."""

_VISIBLE, _IN_FLIGHT = MessageState.VISIBLE, MessageState.IN_FLIGHT
_DELAYED, _DEAD = MessageState.DELAYED, MessageState.DEAD

TRANSITIONS: Final = frozenset(
    {
        (_VISIBLE, _IN_FLIGHT),  # Received, or extended before another consumer received it.
        (_VISIBLE, _VISIBLE),  # Received with a visibility timeout of 0, or released after its end.
        (_VISIBLE, _DELAYED),  # Released after the end of the visibility timeout, with a delay.
        (_VISIBLE, _DEAD),  # Received too often, rejected after that end, or redriven.
        (_IN_FLIGHT, _IN_FLIGHT),  # Extended, or received again by the same attempt.
        (_IN_FLIGHT, _VISIBLE),  # Released, returned, or extended by 0.
        (_IN_FLIGHT, _DELAYED),  # Released with a delay.
        (_IN_FLIGHT, _DEAD),  # Rejected.
        (_DELAYED, _DELAYED),  # Released again under the same receipt, with another delay.
        (_DELAYED, _VISIBLE),  # Released again under the same receipt, without a delay.
        (_DELAYED, _DEAD),  # Rejected under the receipt that released it.
        (_DEAD, _VISIBLE),  # Its target refused it.
        (_DEAD, _DELAYED),  # Its target refused it, and the queue waits before it tries again.
    }
)
"""From and to. So nothing delivers a delayed message or a dead letter, or moves one twice."""
