"""One mutation: some attributes of the code under test, and what to put there instead.

Nothing of this is in the code itself.
"""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any, final

Patch = tuple[Any, str, Any]
"""An object, the name of one of its attributes, and what to put there."""


@final
class Mutation:
    """A bug, with a name and a sentence that says what is wrong."""

    def __init__(self, name: str, about: str, *patches: Patch, shows: tuple[str, ...] = ()) -> None:
        """Consist of `patches`; break the invariants or statements that `shows` lists."""
        self.name = name
        self.about = about
        self.patches = patches
        self.shows = shows

    @contextmanager
    def applied(self) -> Generator[None]:
        """Have the bug while the block runs."""
        with ExitStack() as stack:
            for owner, name, value in self.patches:
                stack.callback(setattr, owner, name, owner.__dict__[name])
                setattr(owner, name, value)
            yield
