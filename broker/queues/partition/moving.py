"""The seam between a partition of a queue and what moves its messages.

Pure: a declaration.
"""

from typing import Protocol


class Moving(Protocol):
    """Moves what a partition has to move, and brings back what it has to bring back."""

    @property
    def is_moving(self) -> bool:
        """Whether something is under way."""
        ...

    def look(self) -> None:
        """There may be something."""
        ...
