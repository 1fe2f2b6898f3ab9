"""Division of a long list into requests of a legal length.

Pure: no clock, no I/O.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from tidelog.wire.messages.field_types import LIST_LENGTH_MAX

_Item = TypeVar("_Item")


def divided(items: Sequence[_Item], most: int = LIST_LENGTH_MAX) -> Iterator[list[_Item]]:
    """Yield the items in lists of at most `most`; one empty list if there are none."""
    for start in range(0, max(len(items), 1), most):
        yield list(items[start : start + most])
