"""Fold of repeated events: one for each kind, principal, host and action in an interval.

Pure: no clock, no I/O. Failed authentications and denials come as fast as an attacker sends them,
so their number must not be the number of records. Memory is bounded: beyond a maximum of different
events, those of a kind count together, for the principal `_other`.
"""

from dataclasses import replace
from typing import Final, NamedTuple, final

from tidelog.broker.audit.event import OK, AuditEvent, AuditKind
from tidelog.broker.audit.usage import OTHER

DIFFERENT_MAX: Final = 10_000
"""Maximum number of different events of one interval that are told apart."""


class FoldedEvent(NamedTuple):
    """Equal events of one interval."""

    event: AuditEvent
    """The first of them."""
    first_ms: int
    last_ms: int
    """Unix milliseconds of the first and of the last."""
    times: int


class _Key(NamedTuple):
    kind: AuditKind
    principal: str
    actor: str
    host: str
    action: str
    result: str
    resource: str
    rule: str


def is_folded(event: AuditEvent) -> bool:
    """Return whether an event is one that an attacker could repeat without end."""
    is_failure = event.kind is AuditKind.AUTHENTICATION and event.result != OK
    return is_failure or event.kind is AuditKind.DENIAL


@final
class EventFold:
    """Events since the last `take`."""

    def __init__(self, different_max: int = DIFFERENT_MAX) -> None:
        """Start empty."""
        self._different_max = different_max
        self._folded: dict[_Key, FoldedEvent] = {}

    def add(self, event: AuditEvent, *, now_ms: int) -> None:
        """Count an event."""
        key = _key_of(event)
        if key not in self._folded and len(self._folded) >= self._different_max:
            key = _Key(event.kind, OTHER, "", "", OTHER, event.result, "", "")
        known = self._folded.get(key)
        if known is None:
            shown = event if key.action != OTHER else _without_subject(event)
            known = FoldedEvent(shown, now_ms, now_ms, 0)
        self._folded[key] = known._replace(last_ms=now_ms, times=known.times + 1)

    def take(self) -> list[FoldedEvent]:
        """Return the events, in the order of their first, and start again."""
        folded, self._folded = self._folded, {}
        return list(folded.values())


def _key_of(event: AuditEvent) -> _Key:
    origin = event.origin
    return _Key(
        event.kind,
        "" if origin is None else str(origin.principal),
        "" if origin is None or origin.actor is None else str(origin.actor),
        "" if origin is None else origin.address.rpartition(":")[0] or origin.address,
        event.action,
        event.result,
        event.resource,
        event.rule,
    )


def _without_subject(event: AuditEvent) -> AuditEvent:
    return replace(
        event, action=OTHER, resource="", rule="", detail={}, request_id=None, origin=None
    )
