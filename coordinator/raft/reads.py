"""ReadIndex: linearizable reads without writing to the log.

Pure: no clock, no I/O.

A leader cannot know by itself that it still leads. So a read takes the leader's commit index, and
then waits until a majority has answered a message that was sent *after* that. At that time no later
leader had a majority, so nothing beyond that index was committed when the read arrived. Reads that
arrive together share one round. No clock takes part: a paused process cannot be fooled.
"""

from collections import deque
from typing import final

import msgspec

from tidelog.coordinator.raft.ready import ReadState


@final
class _Round(msgspec.Struct, frozen=True):
    number: int
    index: int
    contexts: tuple[int, ...]


@final
class ReadQueue:
    """The reads of one leader in one term."""

    def __init__(self) -> None:
        """Start empty."""
        self._new: list[int] = []
        self._rounds: deque[_Round] = deque()
        self.is_idle = True
        """Whether no read waits, neither for a round nor for its confirmation."""
        self.latest_round = 0
        """The number of the last round; 0 before the first."""

    def ask(self, context: int) -> None:
        """Add a read to the next round."""
        self._new.append(context)
        self.is_idle = False

    def begin_round(self, commit_index: int) -> bool:
        """Start a round if reads wait for one; its messages must be sent after this.

        Call this only when an entry of the leader's own term is committed: before that its commit
        index may be behind the index that an earlier leader has committed.
        """
        if not self._new:
            return False
        self.latest_round += 1
        self._rounds.append(_Round(self.latest_round, commit_index, tuple(self._new)))
        self._new.clear()
        return True

    def take_confirmed(self, round_number: int) -> list[ReadState]:
        """Return the reads of all rounds up to the one that a majority has confirmed."""
        confirmed: list[ReadState] = []
        while self._rounds and self._rounds[0].number <= round_number:
            done = self._rounds.popleft()
            confirmed += [ReadState(context, done.index) for context in done.contexts]
        self.is_idle = not self._rounds and not self._new
        return confirmed
