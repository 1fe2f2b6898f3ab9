"""Outcome of a command: journal entries and a reply.

Pure: declarations.
"""

from collections.abc import Sequence
from typing import Generic, TypeVar, final

import msgspec

from tidelog.queue_layer.frames import frames_of
from tidelog.wire.messages.queue_journal import AnyEntry, JournalFrame

Reply = TypeVar("Reply")


@final
class Outcome(msgspec.Struct, Generic[Reply], frozen=True):
    """Entries to be appended and then applied, and the reply to be sent after that.

    A reply without entries may depend on entries of earlier commands: where a reply waits for its
    entries to be committed, it waits for those as well.

    Invariant: every prefix of the entries leads to a valid state, as if it had been decided alone.
    """

    now_ms: int
    """Time of the queue, for the frame."""
    entries: Sequence[AnyEntry]
    reply: Reply

    @property
    def frames(self) -> list[JournalFrame]:
        """Frames to append, in order: mostly one, none without entries."""
        entries = self.entries
        if len(entries) == 1:
            return [JournalFrame(self.now_ms, list(entries))]
        return list(frames_of(self.now_ms, entries)) if entries else []
