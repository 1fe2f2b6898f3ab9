"""Audit events, and the interface by which the parts of a broker note them.

Pure: declarations. An event has no secrets: no password, token, key, nor the content of records.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, final

from tidelog.broker.audit.usage import UsageFold
from tidelog.wire.security.principal import Principal

OK: Final = "ok"
"""Result of what succeeded; other results are names of error codes, or say what happened."""


class AuditKind(StrEnum):
    """The kind of an audit event."""

    AUTHENTICATION = "authentication"
    """A client has proved its identity, or failed to."""
    ADMINISTRATION = "administration"
    """A request that changes topics, queues, groups, the cluster or its security."""
    GRANT = "grant"
    """A request that changes users, tokens, roles or grants."""
    DENIAL = "denial"
    """The broker denied a request."""
    USAGE = "usage"
    """Traffic of one principal with one topic or queue in one minute."""
    SERVICE = "service"
    """The broker itself: audit began, ended, or lost events."""


class RequestOrigin(NamedTuple):
    """Where a request comes from."""

    principal: Principal
    address: str = ""
    """`HOST:PORT` of the client."""
    client_id: str = ""
    """Name that the client gave itself; it proves nothing."""
    actor: Principal | None = None
    """The gateway that acts for the principal; `None` without one."""


@final
@dataclass(frozen=True, slots=True)
class AuditEvent:
    """What happened once; the sink adds time and node, and folds repeated events."""

    kind: AuditKind
    action: str
    """For example `topic.create`, `authenticate`."""
    result: str = OK
    """`ok`, or the name of an error code such as `NOT_AUTHORIZED`."""
    origin: RequestOrigin | None = None
    """`None` for events of the broker itself, and for those of several principals."""
    resource: str = ""
    """For example `topic:orders`, `queue:payments`, `cluster`; empty if there is none."""
    rule: str = ""
    """The rule that decided a denial; empty if there is none."""
    request_id: int | None = None
    """Correlation id of the request on its connection."""
    detail: Mapping[str, object] = field(default_factory=dict[str, object])
    """Further facts, values of JSON; never a secret."""


class AuditSink(Protocol):
    """Takes audit events. Failed authentications and denials are folded by minute."""

    @property
    def usage(self) -> UsageFold | None:
        """Counts of traffic by principal and topic; `None` if they are not counted."""
        ...

    def note(self, event: AuditEvent) -> None:
        """Take an event; never wait, never fail. A full buffer counts it as lost."""
        ...


@final
class NullAudit:
    """Takes no events: `audit = off`."""

    usage: UsageFold | None = None

    def note(self, event: AuditEvent) -> None:
        """See `AuditSink`."""


NULL_AUDIT: Final = NullAudit()
