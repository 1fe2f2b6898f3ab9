"""Outcome of a send, derived from the client library's error."""

from tests.simulation.checkers.history import Outcome
from tidelog.wire.errors import BrokerError, DeliveryTimeoutError, TidelogError


def outcome_of(error: TidelogError) -> Outcome:
    """Return the outcome of the records for which a producer received `error`.

    Either they are not in the log and never will be, or they may be in it.
    """
    if isinstance(error, DeliveryTimeoutError) and "are not in the log" in str(error):
        return Outcome.FAILED
    notes: list[str] = getattr(error, "__notes__", [])
    if isinstance(error, BrokerError) and not any("may be in the log" in note for note in notes):
        return Outcome.FAILED
    return Outcome.UNKNOWN
