"""The error of the demonstration.

Pure: declarations.
"""

from typing import final

from tidelog.wire.errors import TidelogError


@final
class DemoFailedError(TidelogError):
    """A step or a check of the demonstration failed; one line says which."""
