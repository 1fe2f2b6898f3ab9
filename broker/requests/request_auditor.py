"""Audit of administrative requests: intent and outcome of each.

With `audit = required`, a request is carried out after its record is written.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, final

import trio

from tidelog.broker.audit.administration import (
    ADMINISTRATIVE_APIS,
    AdministrativeApi,
    Names,
    repairs_audit,
)
from tidelog.broker.audit.audit_log import AuditLog
from tidelog.broker.audit.event import AuditEvent
from tidelog.broker.requests.response import RequestContext, ResponseHandle
from tidelog.broker.requests.steps import Steps, finish
from tidelog.wire.errors import AuditUnavailableError, BrokerError
from tidelog.wire.protocol.connection import Request

_ENTRIES: Final[Mapping[int, AdministrativeApi]] = {
    int(served.key): entry for served, entry in ADMINISTRATIVE_APIS.items()
}


def is_administrative(api_key: int) -> bool:
    """Return whether requests of an API are noted, if they change something."""
    return api_key in _ENTRIES


Run = Callable[[Request, ResponseHandle], Steps | None]
"""Carries out a request."""
Check = Callable[[Request, RequestContext], None]
"""Raises if a client may not send a request."""


@final
class RequestAuditor:
    """Notes the administrative requests of clients."""

    def __init__(self, log: AuditLog, nursery: trio.Nursery, *, names: Names) -> None:
        """Note them in `log`; `names` has the names of topics and queues."""
        self._log = log
        self._nursery = nursery
        self._names = names

    def run(
        self, run: Run, request: Request, response: ResponseHandle, *, asked: object, check: Check
    ) -> Steps | None:
        """Carry out a request of a client with `run`, and note it if it is administrative.

        The client `asked` for the request, of which items may be denied. `check` is called again if
        the request had to wait.
        """
        entry = _ENTRIES.get(request.api_key)
        if entry is None or not entry.is_change(request.message):
            return run(request, response)
        events = [
            self._event(entry, part, request, context=response.context)
            for part in entry.parts(asked)
        ]
        if self._log.is_required:
            checked = partial(_run_checked, run, check=check)
            start = partial(self._run_after_intent, checked, request, entry=entry, events=events)
            self._nursery.start_soon(start, response)
            return None
        response.on_answered = self._outcome(entry, events, intents=[""] * len(events))
        return run(request, response)

    async def _run_after_intent(
        self,
        run: Run,
        request: Request,
        response: ResponseHandle,
        *,
        entry: AdministrativeApi,
        events: list[AuditEvent],
    ) -> None:
        with response:
            intents = await self._begin(events, may_pass=repairs_audit(request.message))
            response.on_answered = self._outcome(entry, events, intents=intents)
            steps = run(request, response)
            if steps is not None:
                await finish(steps)

    async def _begin(self, events: list[AuditEvent], *, may_pass: bool) -> list[str]:
        """Write the intents of a request together; return the ids of the records.

        Raises:
            AuditUnavailableError: One of them was not written in time; nothing is carried out.
        """
        intents = [""] * len(events)
        refusals: list[AuditUnavailableError] = []

        async def begin(place: int, event: AuditEvent) -> None:
            try:
                intents[place] = await self._log.begin(event, may_pass=may_pass)
            except AuditUnavailableError as error:
                refusals.append(error)

        async with trio.open_nursery() as nursery:
            for place, event in enumerate(events):
                nursery.start_soon(begin, place, event)
        if not refusals:
            return intents
        for event, intent in zip(events, intents, strict=True):
            if intent:
                self._log.note_outcome(event, refusals[0].code.name, intent=intent)
        raise refusals[0]

    def _event(
        self, entry: AdministrativeApi, part: object, request: Request, *, context: RequestContext
    ) -> AuditEvent:
        return AuditEvent(
            entry.kind,
            entry.action,
            "",
            context.origin,
            entry.resource(part, self._names),
            request_id=request.correlation_id,
            detail=entry.detail(part),
        )

    def _outcome(
        self, entry: AdministrativeApi, events: list[AuditEvent], *, intents: list[str]
    ) -> Callable[[BrokerError | None, Any], None]:
        def answered(error: BrokerError | None, reply: object) -> None:
            outcomes = entry.outcomes(len(events), error, reply)
            for event, intent, (result, detail) in zip(events, intents, outcomes, strict=True):
                outcome = replace(event, detail={**event.detail, **detail})
                self._log.note_outcome(outcome, result, intent=intent)

        return answered


def _run_checked(
    run: Run, request: Request, response: ResponseHandle, *, check: Check
) -> Steps | None:
    # The access may have been revoked while the request waited.
    check(request, response.context)
    return run(request, response)
