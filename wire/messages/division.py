"""Division of a long list into requests of a legal length.

Pure: no clock, no I/O.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from tidelog.wire.messages.field_types import LIST_LENGTH_MAX

_Item = TypeVar("_Item")


def divided(items: Sequence[_Item], most: int = LIST_LENGTH_MAX) -> Iterator[list[_Item]]:
    """Yield the items in lists of at most `most`; one empty list if there are none."""
    for start in range(0, max(len(items), 1), most):
        yield list(items[start : start + most])


def divided_names(names: Iterable[str] | None) -> Iterator[list[str] | None]:
    """Yield the names of each request, each name once; one `None` for all names."""
    if names is None:
        yield None
    else:
        yield from divided(list(dict.fromkeys(names)))
