"""What is said of a log: its status, what an append came to, what opening it has found out.

Pure: declarations.
"""

from enum import Enum

import msgspec

from logstore.leader_epoch import LeaderEpochs
from logstore.producer_state import ProducerStates
from logstore.segments import Segments


class LogStatus(Enum):
    """Whether a log can be used; the values are shown to users."""

    ONLINE = "online"
    READ_ONLY = "read-only"
    """The disk is full; appends are refused until there is room."""
    OFFLINE = "offline"
    """The disk failed; nothing is served until the next start has looked at the files."""
    DAMAGED = "damaged"
    """Online, but some stored records are damaged."""


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Where a batch is."""

    base_offset: int
    next_offset: int
    """Offset after its last record."""
    is_duplicate: bool
    """Whether it was there before."""


class LogState(msgspec.Struct, frozen=True):
    """What `logstore.recovery` hands over to a log; all of it is on disk."""

    segments: Segments
    log_start_offset: int
    leader_epochs: LeaderEpochs
    producers: ProducerStates
    checkpoint_base_offset: int
    """Segments below it are wholly on disk, and the checkpoint on disk says so."""
    is_checkpoint_due: bool
    """Whether the checkpoint on disk does not say all that was found."""
    are_names_in_doubt: bool
    """Whether names in the directory, the checkpoint's too, may go away with the power."""
    high_watermark: int = 0
    """All below it was committed; maybe more is."""
