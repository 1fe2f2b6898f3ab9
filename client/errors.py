"""Errors of calls that come too late or too early: the client raises them, no broker.

They are kinds of trio's errors, so programs on trio may catch those. They are no `TidelogError`:
a program does not try again after them.
"""

from typing import final

import trio


@final
class ClosedError(trio.ClosedResourceError):
    """The client, or the object that was called, is closed or was not opened."""


@final
class BufferFullError(trio.WouldBlock):
    """The buffer of a producer has no room: `wait_writable`, and send again."""
