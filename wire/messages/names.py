"""Messages that list names of topics or queues in pages.

Pure: declarations.
"""

from typing import Annotated

import msgspec

from tidelog.wire.messages.field_types import LIST_LENGTH_MAX


class ListNamesRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for names, sorted by code points."""

    prefix: str
    """First characters of the names; empty for all names."""
    after: str
    """Names up to this one are left out: the last name of the page before; empty at first."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIST_LENGTH_MAX)]
    """Maximum number of names."""


class ListNamesReply(msgspec.Struct, frozen=True, array_like=True):
    """One page of names."""

    names: list[str]
    """The names, sorted."""
    has_more: bool
    """Whether names follow the last one."""
