"""Errors that only clients raise; all others are in `wire.errors`.

Pure: declarations.
"""

from typing import final

from wire.errors import TidelogError


@final
class NoPositionError(TidelogError):
    """A consumer was not told where to start in a partition."""
