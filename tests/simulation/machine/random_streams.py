"""Independent random streams by purpose, from one seed.

Pure: no clock, no I/O. An additional draw for one purpose, or the removal of a fault, changes the
numbers of no other purpose.
"""

from random import Random
from typing import final


@final
class RandomStreams:
    """The streams of one seed.

    Invariant: no purpose has two streams, which would draw the same numbers.
    """

    def __init__(self, seed: int | str) -> None:
        """Derive everything from `seed`."""
        self.seed = seed
        self._purposes: dict[str, None] = {}

    def stream(self, purpose: str) -> Random:
        """Return the stream for `purpose`; ask once and keep it."""
        assert purpose not in self._purposes, f"a second stream for {purpose!r}"
        self._purposes[purpose] = None
        # Text is hashed with SHA-512, because `hash` differs between processes.
        return Random(f"{self.seed}/{purpose}")
