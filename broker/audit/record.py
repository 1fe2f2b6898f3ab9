"""Audit records: JSON, with the same fields for each kind (Spark: `from_json`).

Pure: no clock, no I/O.
"""

from collections.abc import Mapping, Sequence
from typing import Final, final

import msgspec

from tidelog.broker.audit.event import OK, AuditEvent, AuditKind
from tidelog.broker.audit.fold import FoldedEvent
from tidelog.broker.audit.usage import Usage

INTENT: Final = "intent"
OUTCOME: Final = "outcome"

_TEXT_CHARS_MAX: Final = 512
_ITEMS_MAX: Final = 50
_DEPTH_MAX: Final = 3
_CUT: Final = "…"


@final
class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One record of the audit topic; fields that do not apply are empty, 0 or null."""

    id: str
    """Identity: the same record under the same id is a repetition."""
    time_ms: int
    """Unix milliseconds; of the first event if several are folded."""
    until_ms: int
    """Unix milliseconds of the last event."""
    node: int
    """The broker that noted the event."""
    kind: AuditKind
    stage: str = ""
    """`intent` or `outcome` of an administrative request with `audit = required`."""
    intent: str = ""
    """Id of the intent of an outcome."""
    principal: str = ""
    address: str = ""
    """`HOST:PORT` of the client."""
    client_id: str = ""
    """Name that the client gave itself."""
    actor: str = ""
    """The gateway that acts for the principal."""
    action: str = ""
    resource: str = ""
    result: str = OK
    rule: str = ""
    """The rule that decided a denial."""
    count: int = 1
    """Number of folded events."""
    request_id: int | None = None
    """Correlation id of the request on its connection."""
    requests: int = 0
    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    """Usage: traffic of the principal with the resource."""
    detail: Mapping[str, str] = {}
    """Further facts, as texts: lists and mappings are JSON."""


_encode = msgspec.json.Encoder().encode


@final
class RecordWriter:
    """Makes the records of one broker process."""

    def __init__(self, node_id: int, started_ms: int) -> None:
        """Number the records of node `node_id` from its start at `started_ms` on."""
        self._node_id = node_id
        self._started_ms = started_ms
        self._next = 0

    def of_event(
        self, event: AuditEvent, *, now_ms: int, stage: str = "", intent: str = ""
    ) -> AuditRecord:
        """Return the record of one event."""
        return self.of_folded(FoldedEvent(event, now_ms, now_ms, 1), stage=stage, intent=intent)

    def of_folded(self, folded: FoldedEvent, *, stage: str = "", intent: str = "") -> AuditRecord:
        """Return the record of equal events."""
        event = folded.event
        origin = event.origin
        return AuditRecord(
            id=self._new_id(),
            time_ms=folded.first_ms,
            until_ms=folded.last_ms,
            node=self._node_id,
            kind=event.kind,
            stage=stage,
            intent=intent,
            principal="" if origin is None else str(origin.principal),
            address="" if origin is None else origin.address,
            client_id="" if origin is None else origin.client_id,
            actor="" if origin is None or origin.actor is None else str(origin.actor),
            action=_text(event.action),
            resource=_text(event.resource),
            result=event.result,
            rule=_text(event.rule),
            count=folded.times,
            request_id=event.request_id,
            detail={name: _text(value) for name, value in event.detail.items()},
        )

    def of_usage(
        self, principal: str, resource: str, usage: Usage, *, first_ms: int, last_ms: int
    ) -> AuditRecord:
        """Return the record of the traffic of one principal with one resource."""
        return AuditRecord(
            id=self._new_id(),
            time_ms=first_ms,
            until_ms=last_ms,
            node=self._node_id,
            kind=AuditKind.USAGE,
            principal=principal,
            action="usage",
            resource=resource,
            requests=usage.requests,
            records_in=usage.records_in,
            records_out=usage.records_out,
            bytes_in=usage.bytes_in,
            bytes_out=usage.bytes_out,
        )

    def _new_id(self) -> str:
        self._next += 1
        return f"{self._node_id}-{self._started_ms:x}-{self._next}"


def encode_record(record: AuditRecord) -> bytes:
    """Return the JSON of a record, in one line."""
    return _encode(record)


def _text(value: object) -> str:
    """Return a value as a text of bounded length."""
    text = value if isinstance(value, str) else _encode(_bounded(value, _DEPTH_MAX)).decode()
    return text if len(text) <= _TEXT_CHARS_MAX else text[:_TEXT_CHARS_MAX] + _CUT


def _bounded(value: object, depth: int) -> object:
    """Return a value of JSON that is not larger than a record may be."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth and isinstance(value, Mapping):
        items = list(value.items())[:_ITEMS_MAX]
        return {str(name)[:_TEXT_CHARS_MAX]: _bounded(each, depth - 1) for name, each in items}
    if depth and isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_bounded(each, depth - 1) for each in value[:_ITEMS_MAX]]
    if isinstance(value, bytes):
        return value[:_TEXT_CHARS_MAX].hex()
    return str(value)[:_TEXT_CHARS_MAX]
