"""What a command comes to.

Pure: declarations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, final

from queue_layer.entries import AnyEntry, Frame

Reply = TypeVar("Reply")


@final
@dataclass(frozen=True, slots=True)
class Outcome(Generic[Reply]):
    """Entries to be appended and then applied, and the reply that may go out when they are.

    A reply without entries may rest on entries of earlier commands: where a reply waits for its
    entries to be committed, it waits for those as well.
    """

    now_ms: int
    """The queue's time, for the frame."""
    entries: Sequence[AnyEntry]
    reply: Reply

    @property
    def frame(self) -> Frame | None:
        """What to append; `None` if there is nothing."""
        return Frame(self.now_ms, list(self.entries)) if self.entries else None
