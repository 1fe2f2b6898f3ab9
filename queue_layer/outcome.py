"""What a command comes to.

Pure: declarations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, final

from tidelog.queue_layer.frames import frames_of
from tidelog.wire.messages.queue_journal import AnyEntry, JournalFrame

Reply = TypeVar("Reply")


@final
@dataclass(frozen=True, slots=True)
class Outcome(Generic[Reply]):
    """Entries to be appended and then applied, and the reply that may go out when they are.

    A reply without entries may rest on entries of earlier commands: where a reply waits for its
    entries to be committed, it waits for those as well.

    Invariant: whoever finds only a beginning of the entries has a state that is right too: somebody
    could have decided just this.
    """

    now_ms: int
    """The queue's time, for the frame."""
    entries: Sequence[AnyEntry]
    reply: Reply

    @property
    def frames(self) -> list[JournalFrame]:
        """What to append, one behind the other: mostly one frame, none if there is nothing."""
        return list(frames_of(self.now_ms, self.entries)) if self.entries else []
