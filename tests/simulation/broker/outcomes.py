"""What an error of the library says of the records that it is about."""

from tests.simulation.checkers.history import Outcome
from tidelog.wire.errors import BrokerError, DeliveryTimeoutError, TidelogError


def outcome_of(error: TidelogError) -> Outcome:
    """Return what a producer knows of records for which it was told `error`.

    It is told that they are not in the log, and never will be, or that they may be.
    """
    if isinstance(error, DeliveryTimeoutError) and "are not in the log" in str(error):
        return Outcome.FAILED
    notes: list[str] = getattr(error, "__notes__", [])
    if isinstance(error, BrokerError) and not any("may be in the log" in note for note in notes):
        return Outcome.FAILED
    return Outcome.UNKNOWN
