"""Options of a relay.

Shell: the default receiver of lines is a logger.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

from tidelog.outbox.store import BatchLimits

Report = Callable[[str], object]
"""Receiver of lines about what the relay waits for."""

_log: Final = logging.getLogger("tidelog.outbox")


def log_line(line: str) -> None:
    """Log what a relay waits for, as a warning of the logger `tidelog.outbox`."""
    _log.warning(line)


@final
@dataclass(frozen=True, slots=True)
class RelayOptions:
    """Options of a relay."""

    poll_s: float
    """Seconds between two looks at the table, if nothing wakes the relay earlier."""
    limits: BatchLimits
    keep_s: float | None
    """Age in seconds at which relayed rows are deleted; `None` keeps them."""
    dead_letter_topic: str | None
    report: Report = log_line
