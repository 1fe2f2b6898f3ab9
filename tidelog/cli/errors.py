"""Errors of the command line, and the texts of errors.

Pure: no clock, no I/O.
"""

from typing import final

from tidelog.wire.errors import TidelogError


@final
class CommandError(TidelogError):
    """A command failed; one line says why, and how much it did."""


def reason_of(error: BaseException) -> str | None:
    """Return the text of an error; return `None` for a defect of tidelog."""
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}"
    if isinstance(error, TidelogError):
        return "; ".join((str(error), *getattr(error, "__notes__", ())))
    return None
