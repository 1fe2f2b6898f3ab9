"""The error of the demonstration.

Pure: declarations.
"""

from typing import final

from tidelog.wire.errors import TidelogError


@final
class DemoFailedError(TidelogError):
    """The demonstration could not show what it is there to show; one line says what is missing."""
