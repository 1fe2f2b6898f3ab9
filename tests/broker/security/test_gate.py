"""The gate before the handlers: principals, expiry, and access after both."""

from dataclasses import replace
from typing import Any

import pytest

from tests.broker.requests.test_response import FakeContext
from tidelog.broker.requests.identity import ClientIdentity
from tidelog.broker.requests.response import RequestContext
from tidelog.broker.security.gate import RequestGate
from tidelog.wire.errors import (
    AuthenticationExpiredError,
    AuthenticationRequiredError,
    NotAuthorizedError,
)
from tidelog.wire.protocol import api
from tidelog.wire.protocol.connection import Request
from tidelog.wire.security.principal import user_principal

ALICE = ClientIdentity(user_principal("alice"), expires_at_ms=5_000, how="TOKEN")


class SetClock:
    """A wall clock that shows what the test sets."""

    time_ms = 1_000

    def now_ms(self) -> int:
        return self.time_ms


class NoAccess:
    """Allows nothing."""

    def check(self, request: Request, context: RequestContext) -> None:
        del request
        raise NotAuthorizedError(f"{context.identity.principal} may do nothing")


def check(
    gate: RequestGate, identity: ClientIdentity | None = None, *, of: api.Api[Any, Any]
) -> None:
    context = FakeContext()
    if identity is not None:
        context.authenticated(identity)
    request = Request(int(of.key), 1, 1, None, memoryview(b""))
    gate.check(request, context)


def test_anonymous_clients_are_served_while_authentication_is_optional() -> None:
    check(RequestGate(SetClock(), is_authentication_required=False), of=api.METADATA)


def test_required_authentication_leaves_anonymous_clients_the_handshake_alone() -> None:
    gate = RequestGate(SetClock(), is_authentication_required=True)
    open_keys = set[int]()
    for each in api.APIS:
        try:
            check(gate, of=each)
        except AuthenticationRequiredError:
            continue
        open_keys.add(int(each.key))
    assert open_keys == {api.ApiKey.HELLO, api.ApiKey.AUTHENTICATE, api.ApiKey.PROVE_NODE}
    check(gate, ALICE, of=api.METADATA)


def test_credentials_hold_until_the_millisecond_of_their_end() -> None:
    clock = SetClock()
    gate = RequestGate(clock, is_authentication_required=False)
    clock.time_ms = 4_999
    check(gate, ALICE, of=api.FETCH)
    clock.time_ms = 5_000
    with pytest.raises(AuthenticationExpiredError, match="user:alice are no longer valid"):
        check(gate, ALICE, of=api.FETCH)
    check(gate, ALICE, of=api.AUTHENTICATE)  # A renewal is still possible.
    check(gate, replace(ALICE, expires_at_ms=9_000), of=api.FETCH)


def test_access_is_asked_about_valid_principals_only() -> None:
    gate = RequestGate(SetClock(), is_authentication_required=True)
    gate.access = NoAccess()
    with pytest.raises(NotAuthorizedError, match="user:alice"):
        check(gate, ALICE, of=api.FETCH)
    with pytest.raises(AuthenticationRequiredError):
        check(gate, of=api.FETCH)
    check(gate, of=api.HELLO)
