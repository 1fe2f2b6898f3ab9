"""Errors of the command line, and what people are told of errors.

Pure: no clock, no I/O.
"""

from typing import final

from tidelog.wire.errors import TidelogError


@final
class CommandError(TidelogError):
    """A command cannot go on; one line says why, and how far it came."""


def reason_of(error: BaseException) -> str | None:
    """Return what people are told of an error, `None` when it is a defect of tidelog."""
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}"
    if isinstance(error, TidelogError):
        return "; ".join((str(error), *getattr(error, "__notes__", ())))
    return None
