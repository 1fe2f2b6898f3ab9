"""A mutation: attributes of the code under test, and their replacements.

The code itself contains none of it.
"""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any, final

Patch = tuple[Any, str, Any]
"""An object, the name of one of its attributes, and the replacement."""


@final
class Mutation:
    """A defect, with a name and a description."""

    def __init__(self, name: str, about: str, *patches: Patch, shows: tuple[str, ...] = ()) -> None:
        """Consist of `patches`; break the invariants or statements in `shows`."""
        self.name = name
        self.about = about
        self.patches = patches
        self.shows = shows

    @contextmanager
    def applied(self) -> Generator[None]:
        """Apply the defect while the block runs."""
        with ExitStack() as stack:
            for owner, name, value in self.patches:
                stack.callback(setattr, owner, name, owner.__dict__[name])
                setattr(owner, name, value)
            yield
