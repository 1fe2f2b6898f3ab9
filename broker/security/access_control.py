"""Control of access: which requests of clients are carried out, and what of a reply they get.

Pure, but for the clock of denials. A request is decided before its handler, by the requirement of
its API. A reply that acknowledges or delivers is decided again when it is made, if rules have
changed since: so nothing leaves by a rule that this broker knows to be revoked, however long the
request waited, and no handler has to ask.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, final

import msgspec

from tidelog.broker.requests.identity import ANONYMOUS_IDENTITY, ClientIdentity
from tidelog.broker.requests.response import RequestContext, ResponseHandle
from tidelog.broker.security.denials import NOT_BY_GATEWAYS, Denials, denied
from tidelog.broker.security.requirements import (
    REQUIREMENTS,
    Items,
    Need,
    Requirement,
    sees,
)
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.security.access import AccessTable, Decision
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import (
    AuthenticationExpiredError,
    BrokerError,
    ErrorDetail,
    NotANodeError,
    RequestTimedOutError,
)
from tidelog.wire.protocol.connection import Request
from tidelog.wire.security.access_rules import (
    CLUSTER,
    DESCRIBE,
    NAME_CHARS_MAX,
    Resource,
    cluster_action,
    needed,
)
from tidelog.wire.security.principal import ANONYMOUS
from tidelog.wire.transport.write_buffer import FileRegion

_ASKERS_MAX: Final = 10_000
"""Principals whose decisions are remembered."""
_DECISIONS_MAX: Final = 10_000
"""Decisions that are remembered for each of them."""
_IMPERSONATE: Final = Need(cluster_action("impersonate"))
_NOTHING: Final[Mapping[int, ErrorDetail]] = MappingProxyType({})
Pieces = Sequence[BytesLike | FileRegion]


@final
class Asker:
    """What one principal may do under one version of the rules; see `requirements.Sight`."""

    def __init__(
        self,
        table: AccessTable,
        state: Callable[[], ClusterState],
        *,
        principal: str,
        roles: tuple[str, ...],
        is_gateway: bool = False,
    ) -> None:
        """Decide by `table`; ids are those of `state`.

        A gateway that acts for the principal administers no cluster, even if rules allow that:
        otherwise it could use a request of an administrator to become an administrator.
        """
        self._table = table
        self._state = state
        self._is_gateway = is_gateway
        self.principal = principal
        """See `requirements.Sight`."""
        self.roles = roles
        """See `requirements.Sight`."""
        self.passed: dict[object, set[object]] = {}
        """Ids that are allowed, by the API and purpose of the request. An id never gets another
        name."""
        self._decisions: dict[Resource, Decision] = {}

    @property
    def state(self) -> ClusterState:
        """See `requirements.Sight`."""
        return self._state()

    def decide(self, resource: Resource) -> Decision:
        """Return the decision about an action."""
        known = self._decisions.get(resource)
        if known is None:
            action, kind, name = needed(resource)
            if self._is_gateway and kind == CLUSTER and action != DESCRIBE:
                known = NOT_BY_GATEWAYS
            else:
                known = self._table.decide(
                    self.principal, self.roles, action=action, kind=kind, name=name
                )
            if len(self._decisions) >= _DECISIONS_MAX:
                self._decisions.clear()
            if len(resource.name) <= NAME_CHARS_MAX:
                self._decisions[resource] = known
        return known

    def may(self, resource: Resource) -> bool:
        """See `requirements.Sight`."""
        return self.decide(resource).allowed

    def may_all(self, action: str, kind: str, prefix: str) -> bool:
        """See `requirements.Sight`."""
        return self._table.allows_all(
            self.principal, self.roles, action=action, kind=kind, prefix=prefix
        )

    def may_some(self, action: str, kind: str) -> bool:
        """See `requirements.Sight`."""
        return self._table.allows_some(self.principal, self.roles, action=action, kind=kind)

    def patterns(self, kind: str) -> list[str]:
        """See `requirements.Sight`."""
        return self._table.patterns(self.principal, self.roles, kind)


@final
class AccessControl:
    """Decides about the requests of clients; see `broker.dispatch.AccessDecider`."""

    def __init__(
        self,
        state: Callable[[], ClusterState],
        denials: Denials,
        *,
        is_enforced: bool,
        is_current: Callable[[], bool],
        requirements: Mapping[int, Requirement] = REQUIREMENTS,
    ) -> None:
        """Decide by the rules in `state`.

        Args:
            state: Returns the metadata that this broker has.
            denials: Takes what is denied.
            is_enforced: Whether to deny; without it, denials are only noted.
            is_current: Returns whether this broker has the rules of some seconds ago, so that a
                revocation has waited for it.
            requirements: By API key.
        """
        self._state = state
        self._denials = denials
        self._is_enforced = is_enforced
        self.is_current = is_current
        self._requirements = requirements
        self._askers: dict[tuple[str, tuple[str, ...], bool], Asker] = {}
        self._table = AccessTable()
        self._version = 0
        self._last_identity = ANONYMOUS_IDENTITY
        self._last_asker = Asker(self._table, state, principal=str(ANONYMOUS), roles=())

    def admit(self, request: Request, response: ResponseHandle) -> Request:
        """Return the request to carry out: without the items that are denied.

        Raises:
            BrokerError: The request as a whole is denied, or names what the principal may not see.
        """
        context, requirement = response.context, self._requirements[request.api_key]
        if requirement.is_open:
            return request
        if requirement.is_of_nodes:
            raise NotANodeError("only nodes of the cluster may send this; no rule can allow it")
        asker, items = self.asker(context.identity), requirement.items
        if requirement.needs is not None:
            self.check_needs(request, requirement, asker, context=context)
        refused: Mapping[int, ErrorDetail] = _NOTHING
        if items is not None and not _has_passed(request, items, asker):
            refused = self._refused(request, items, asker, context=context)
        if (refused or requirement.shown is not None) and self._is_enforced:
            response.guard = AccessReview(self, request, requirement, asker, context, refused)
            if refused and items is not None:
                return _without(request, items, refused)
        return request

    def wait(self, request: Request, response: ResponseHandle) -> None:
        """Have the reply to a request that waits decided again when it is made.

        A reply that is made at once needs no other decision than that of `admit`, and handlers
        acknowledge and deliver only while this broker has its lease.
        """
        context = response.context
        if context.node_id is not None or response.guard is not None or not self._is_enforced:
            return
        requirement = self._requirements[request.api_key]
        if requirement.is_kept:
            asker = self.asker(context.identity)
            response.guard = AccessReview(self, request, requirement, asker, context, _NOTHING)

    def check(self, request: Request, context: RequestContext) -> None:
        """See `broker.dispatch.AccessDecider`."""
        if context.node_id is not None:
            return
        requirement, asker = self._requirements[request.api_key], self.asker(context.identity)
        self.check_needs(request, requirement, asker, context=context)
        items, message = requirement.items, request.message
        if items is None or items.needs is None or not self._is_enforced:
            return
        for item in getattr(message, items.items):
            error = self.item_error(item, message, items, asker=asker, context=context)
            if error is not None:
                raise error

    def asker(self, identity: ClientIdentity) -> Asker:
        """Return the principal of a connection, under the present rules."""
        table = self._state().security.access
        if table is not self._table or table.version != self._version:
            self._askers.clear()
            self._table, self._version = table, table.version
        elif identity is self._last_identity:
            return self._last_asker
        is_gateway = identity.impersonation is not None
        key = (identity.principal.name, identity.roles, is_gateway)
        asker = self._askers.get(key)
        if asker is None:
            if len(self._askers) >= _ASKERS_MAX:
                self._askers.clear()
            principal = identity.principal
            roles = (*identity.roles, *table.roles_of(principal.name))
            asker = Asker(
                table, self._state, principal=str(principal), roles=roles, is_gateway=is_gateway
            )
            self._askers[key] = asker
        self._last_identity, self._last_asker = identity, asker
        return asker

    def check_needs(
        self, request: Request, requirement: Requirement, asker: Asker, *, context: RequestContext
    ) -> None:
        """Check the needs of a whole request.

        Raises:
            BrokerError: One of them is not met.
        """
        needs, remembered = requirement.needs, requirement.remembered
        if needs is None:
            return
        passed: set[object] | None = None
        if remembered is not None:
            passed = asker.passed.setdefault(request.api_key, set())
            if remembered(request.message) in passed:
                return
        is_known = False
        for need in needs(request.message, asker):
            is_known = True
            error = self.error_of(need, asker, context)
            if error is not None and self._is_enforced:
                raise error
        if passed is not None and remembered is not None and is_known and self._is_enforced:
            _remember(passed, remembered(request.message))

    def check_impersonation(self, actor: ClientIdentity, context: RequestContext) -> None:
        """Check that a gateway may act for users.

        Raises:
            NotAuthorizedError: It may not.
        """
        error = self.error_of(_IMPERSONATE, self.asker(actor), context)
        if error is not None and self._is_enforced:
            raise error

    def may_impersonate(self, actor: ClientIdentity) -> bool:
        """Return whether a gateway may act for users, and note nothing."""
        return not self._is_enforced or self.asker(actor).may(_IMPERSONATE.resource)

    def error_of(self, need: Need, asker: Asker, context: RequestContext) -> BrokerError | None:
        """Return why a need is not met, and note it; `None` if it is."""
        resource = need.resource
        decision = asker.decide(resource)
        if decision.allowed:
            return None
        self._denials.note(asker.principal, resource, decision, context=context)
        if need.unknown is not None and not sees(asker, resource.kind, resource.name):
            return need.unknown()
        return denied(asker.principal, resource, decision)

    def _refused(
        self, request: Request, items: Items, asker: Asker, *, context: RequestContext
    ) -> dict[int, ErrorDetail]:
        """Return the error of each item that is denied, by its index."""
        message: Any = request.message
        refused: dict[int, ErrorDetail] = {}
        passed = asker.passed.setdefault(_purpose(request, items), set())
        for index, item in enumerate(getattr(message, items.items)):
            if items.needs is None and item.topic_id in passed:
                continue
            error = self.item_error(item, message, items, asker=asker, context=context)
            if error is not None:
                refused[index] = error.to_wire()
            elif (
                items.needs is None and self._state().catalog.topic_by_id(item.topic_id) is not None
            ):
                _remember(passed, item.topic_id)
        return refused

    def item_error(
        self, item: object, message: object, items: Items, *, asker: Asker, context: RequestContext
    ) -> BrokerError | None:
        """Return why an item is denied; `None` if it is allowed, or the handler refuses it."""
        if items.needs is not None:
            errors = (self.error_of(need, asker, context) for need in items.needs(item, asker))
            return next((error for error in errors if error is not None), None)
        need = items.need(item, message, asker.state)
        return None if need is None else self.error_of(need, asker, context)


@final
class AccessReview(msgspec.Struct, frozen=True):
    """Decides about the reply to one request; see `broker.requests.response.ReplyGuard`."""

    control: AccessControl
    request: Request
    requirement: Requirement
    asker: Asker
    context: RequestContext
    refused: Mapping[int, ErrorDetail]

    def review(self, message: object, attachment: Pieces) -> tuple[object, Pieces]:
        """Return the reply that the principal may get now.

        Raises:
            BrokerError: It may not get any.
        """
        requirement, control = self.requirement, self.control
        asker = self.asker
        if requirement.is_kept:
            self._check_currency()
            asker = control.asker(self.context.identity)
            if asker is not self.asker:
                control.check_needs(self.request, requirement, asker, context=self.context)
        if requirement.items is not None and (self.refused or asker is not self.asker):
            message, attachment = self._merged(
                requirement.items, asker, message, attachment=attachment
            )
        if requirement.shown is not None:
            asker = control.asker(self.context.identity)
            message = requirement.shown(self.request.message, message, asker)
        return message, attachment

    def _check_currency(self) -> None:
        """Raise unless this broker and the proof of the identity are up to date.

        Raises:
            AuthenticationExpiredError: The credentials were revoked meanwhile.
            RequestTimedOutError: A revocation may be unknown here.
        """
        identity = self.context.identity
        if not identity.is_current():
            raise AuthenticationExpiredError(
                f"the credentials of {identity.principal} are no longer valid; the outcome of the"
                " request is unknown; authenticate again with fresh ones"
            )
        if not self.control.is_current():
            raise RequestTimedOutError(
                "this broker has lost contact with its cluster, and cannot tell whether access was"
                " revoked; the outcome of the request is unknown"
            )

    def _merged(
        self, items: Items, asker: Asker, reply: object, *, attachment: Pieces
    ) -> tuple[object, Pieces]:
        """Put in the errors of denied items, and take out what is denied since."""
        request: Any = self.request.message
        message: Any = reply
        given, pieces = iter(getattr(message, items.results)), iter(attachment)
        results: list[object] = []
        kept: list[BytesLike | FileRegion] = []
        for index, item in enumerate(getattr(request, items.items)):
            refused = self.refused.get(index)
            if refused is not None:
                results.append(items.denied(item, refused))
                continue
            result = next(given)
            own = [*_take(pieces, items.result_bytes(result))]
            error: BrokerError | None = None
            if asker is not self.asker and result.error is None:
                error = self.control.item_error(
                    item, request, items, asker=asker, context=self.context
                )
            if error is None:
                results.append(result)
                kept += own
            else:
                results.append(items.denied(item, error.to_wire()))
        return msgspec.structs.replace(message, **{items.results: results}), kept


def _purpose(request: Request, items: Items) -> object:
    """Return what the needs of items depend on besides their ids."""
    if items.purpose is None:
        return request.api_key
    return request.api_key, items.purpose(request.message)


def _has_passed(request: Request, items: Items, asker: Asker) -> bool:
    """Return whether all items are known to be allowed: nearly always."""
    passed = asker.passed.get(_purpose(request, items))
    if passed is None:
        return False
    # A loop, for one item is usual, and a generator costs as much as its check.
    for item in getattr(request.message, items.items):  # noqa: SIM110
        if item.topic_id not in passed:
            return False
    return True


def _take(
    pieces: Iterator[BytesLike | FileRegion], length: int
) -> Iterator[BytesLike | FileRegion]:
    """Take the next pieces of an attachment, `length` bytes together."""
    while length > 0:
        piece = next(pieces)
        length -= piece.length if isinstance(piece, FileRegion) else len(piece)
        yield piece


def _without(request: Request, items: Items, refused: Mapping[int, ErrorDetail]) -> Request:
    """Return a request without some of its items, and their parts of the attachment."""
    message: Any = request.message
    kept: list[object] = []
    parts: list[memoryview] = []
    position = 0
    for index, item in enumerate(getattr(message, items.items)):
        end = position + items.sent_bytes(item)
        if index not in refused:
            kept.append(item)
            parts.append(request.attachment[position:end])
        position = end
    # What is behind the last item makes the request malformed, and stays.
    parts.append(request.attachment[position:])
    fields = {items.items: kept, **items.at_once}
    return msgspec.structs.replace(
        request,
        message=msgspec.structs.replace(message, **fields),
        attachment=memoryview(bytearray().join(parts)),
    )


def _remember(passed: set[object], key: object) -> None:
    if len(passed) >= _DECISIONS_MAX:
        passed.clear()
    passed.add(key)
