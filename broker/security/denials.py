"""Denials of access: the error for the client, the log, the audit and the counts.

Shell: reads trio's clock, and reports to a probe and to the audit of the connection.
"""

from collections import Counter
from typing import Final, final

import trio

from tidelog.broker.audit.event import AuditEvent, AuditKind
from tidelog.broker.requests.response import RequestContext
from tidelog.coordinator.security.access import Decision
from tidelog.coordinator.security.records import Grant
from tidelog.wire.env.env import Probe
from tidelog.wire.errors import NotAuthorizedError
from tidelog.wire.security.access_rules import (
    CLUSTER,
    NAME_CHARS_MAX,
    Resource,
    describe_rule,
)

_INTERVAL_S: Final = 60.0
_KEYS_MAX: Final = 1_000
"""Principals and resources that are told apart in a minute; others are counted only."""
NOT_BY_GATEWAYS: Final = Decision(allowed=False, rule=None)
"""Decision about actions of the cluster, if a gateway acts for the principal."""
WOULD_DENY: Final = "WOULD_DENY"
"""Result in the audit of a request that is served, and that `authorization = enforce` denies."""


@final
class Denials:
    """The denials of one broker."""

    def __init__(self, probe: Probe, *, is_enforced: bool) -> None:
        """Report to `probe`; without `is_enforced` the requests are served nevertheless."""
        self._probe = probe
        self._is_enforced = is_enforced
        self.counts: Counter[tuple[str, str]] = Counter()
        """Denials by kind and action."""
        self._told: set[tuple[str, Resource]] = set()
        self._told_since = 0.0

    def note(
        self, principal: str, resource: Resource, decision: Decision, *, context: RequestContext
    ) -> None:
        """Count a denial; log the first of a principal and resource in each minute."""
        # Clients choose the names, of any length.
        resource = resource._replace(name=resource.name[:NAME_CHARS_MAX])
        self.counts[resource.kind, resource.action] += 1
        rule = _text(decision.rule)
        context.audit.note(
            AuditEvent(
                AuditKind.DENIAL,
                f"{resource.kind}.{resource.action}",
                NotAuthorizedError.code.name if self._is_enforced else WOULD_DENY,
                context.origin,
                CLUSTER if resource.kind == CLUSTER else f"{resource.kind}:{resource.name}",
                rule,
            )
        )
        now = trio.current_time()
        if now - self._told_since >= _INTERVAL_S:
            self._told.clear()
            self._told_since = now
        key = (principal, resource)
        if key in self._told or len(self._told) >= _KEYS_MAX:
            return
        self._told.add(key)
        self._probe(
            "access_denied" if self._is_enforced else "access_would_be_denied",
            severity="info" if self._is_enforced else "warning",
            principal=principal,
            resource=str(resource),
            rule=rule,
            peer=context.peer,
        )


def denied(principal: str, resource: Resource, decision: Decision) -> NotAuthorizedError:
    """Return the error for the client."""
    if decision is NOT_BY_GATEWAYS:
        return NotAuthorizedError(
            f"{principal} may not {resource} through a gateway; connect to the broker itself"
        )
    reason = "no rule allows it" if decision.rule is None else "a rule denies it"
    return NotAuthorizedError(
        f"{principal} may not {resource}: {reason}; see `tidelog access explain {principal}"
        f" {resource}`"
    )


def _text(rule: Grant | None) -> str:
    if rule is None:
        return ""
    return describe_rule(
        rule.principal, rule.kind, rule.pattern, actions=rule.actions, is_deny=rule.is_deny
    )
