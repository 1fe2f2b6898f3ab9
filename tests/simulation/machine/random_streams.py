"""Independent random streams by purpose, from one seed.

Pure: no clock, no I/O. An additional draw for one purpose, or the removal of a fault, changes the
numbers of no other purpose.
"""

from collections.abc import Callable
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
        self._streams: dict[str, Random] = {}

    def stream(self, purpose: str) -> Random:
        """Return the stream for `purpose`; ask once and keep it."""
        assert purpose not in self._streams, f"a second stream for {purpose!r}"
        # Text is hashed with SHA-512, because `hash` differs between processes.
        random = self._streams[purpose] = Random(f"{self.seed}/{purpose}")
        return random

    def keep(self) -> Callable[[], None]:
        """Return a function that undoes all draws from now on."""
        kept = [(random, random.getstate()) for random in self._streams.values()]

        def restore() -> None:
            for random, state in kept:
                random.setstate(state)

        return restore
