"""What is said of a log: its status, what an append came to, what opening it has found out.

Pure: declarations.
"""

import msgspec

from tidelog.logstore.leader_epochs import LeaderEpochs
from tidelog.logstore.producer_state import ProducerStates
from tidelog.logstore.segments.segment_list import SegmentList


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Where a batch is."""

    base_offset: int
    next_offset: int
    """Offset after its last record."""
    is_duplicate: bool
    """Whether it was there before."""


class LogState(msgspec.Struct, frozen=True):
    """What `logstore.recovery.recovery` hands over to a log; all of it is on disk."""

    segments: SegmentList
    log_start_offset: int
    leader_epochs: LeaderEpochs
    producers: ProducerStates
    checkpoint_base_offset: int
    """SegmentList below it are wholly on disk, and the checkpoint on disk says so."""
    is_checkpoint_due: bool
    """Whether the checkpoint on disk does not say all that was found."""
    dir_sync_pending: bool
    """Whether names in the directory, the checkpoint's too, may go away with the power."""
    high_watermark: int = 0
    """All below it was committed; maybe more is."""
    clean_offset: int = 0
    """How far compaction had come."""
