"""Dead letters on their way: answers wait for a moment until they are at their target.

So a poll of the dead-letter queue that starts after an answer of this queue finds what the answer
found dead.
"""

from collections.abc import Callable
from typing import Final, final

import trio

from tidelog.queue_layer.queue_partition import QueuePartition

LETTERS_S: Final = 1.0
"""Maximum age in seconds of a dead letter for which answers wait until it is at its target."""


@final
class FreshLetters:
    """The last dead letters of one partition."""

    def __init__(self, core: QueuePartition) -> None:
        """Watch the moves of `core`; call `note` after each decision."""
        self._core = core
        self._at = -LETTERS_S
        """When messages became dead letters last, in seconds of trio's clock."""
        self._end = (0, 0)
        """End of the dead letters that the queue has to move."""
        self._has_changed: trio.Event | None = None
        """Set at the next decision, if an answer waits for dead letters."""

    @property
    def are_on_the_way(self) -> bool:
        """Whether messages became dead letters just now, and are not at their target yet."""
        return trio.current_time() < self._at + LETTERS_S and not self._are_moved(self._end)

    def skip(self) -> None:
        """Take those so far for old ones: an earlier leader decided about them."""
        self._end = self._present_end()

    def note(self) -> None:
        """Note that there may be more dead letters, or that some are at their target."""
        end = self._present_end()
        if end != self._end:
            if end > self._end:
                self._at = trio.current_time()
            self._end = end
        self.wake()

    def wake(self) -> None:
        """Have waiting tasks look again."""
        if self._has_changed is not None:
            self._has_changed.set()
            self._has_changed = None

    async def wait(self, *, is_served: Callable[[], bool]) -> None:
        """Wait until those so far are at their target, are old, or the queue is not served."""
        end = self._end
        with trio.move_on_at(self._at + LETTERS_S):
            while is_served() and not self._are_moved(end):
                if self._has_changed is None:
                    self._has_changed = trio.Event()
                await self._has_changed.wait()

    def _present_end(self) -> tuple[int, int]:
        target = self._core.config.dead_letter_target
        return (0, 0) if target is None else self._core.state.moves.end_of(target)

    def _are_moved(self, end: tuple[int, int]) -> bool:
        target = self._core.config.dead_letter_target
        return target is None or self._core.state.moves.has_reached(target, end)
