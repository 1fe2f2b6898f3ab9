"""The job that moves messages of a queue elsewhere, mostly dead letters back.

Pure: declarations.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import final


class RedriveStatus(IntEnum):
    """How far a redrive is."""

    RUNNING = 0
    COMPLETED = 1
    CANCELLED = 2
    """What was already taken out is moved nevertheless."""
    FAILED = 3


@final
@dataclass(frozen=True, slots=True)
class Redrive:
    """The redrive of one partition that runs, or ran last."""

    end: int
    """Exclusive: what came after it began stays."""
    next_offset: int
    """Below it all was looked at."""
    to_move: int
    """How many messages there were when it began, filtered or not."""
    started_ms: int
    moved: int = 0
    """How many it has taken out of the queue."""
    status: RedriveStatus = RedriveStatus.RUNNING
    destination: bytes | None = None
    """Topic id; `None` for where each message came from."""
    messages_per_s: int | None = None
    origin_queue: str | None = None
    """Only messages from this queue."""
    reason: str = ""
    """Why it failed or was cancelled."""
