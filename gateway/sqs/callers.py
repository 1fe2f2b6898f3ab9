"""Callers: from an HTTP request to the user that asks, its account and region, and its client.

Shell: it owns the clients of users.
"""

import re
from functools import lru_cache
from typing import Final, Protocol, final

import trio

from tidelog.client.client import Client
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.http.messages import HttpRequest
from tidelog.gateway.sqs.message_record import SENDER_HEADER
from tidelog.gateway.sqs.names import QueueScope
from tidelog.gateway.sqs.protocol.errors import ACCESS_DENIED, SERVICE_UNAVAILABLE, SqsError
from tidelog.gateway.sqs.settings import REQUEST_S, FrontSettings
from tidelog.gateway.sqs.shared import FrontState
from tidelog.wire.security.loopback import is_loopback

_SENDER: Final = "anonymous"
"""`SenderId` of messages from callers that prove nothing."""
_REGION: Final = re.compile(rb"Credential=[^/,\s]+/\d{8}/([a-z][a-z0-9-]{0,31})\Z")
_SCOPE_END: Final = b"/sqs/aws4_request"
_SCOPE_BYTES: Final = 256
_AUTHORITY: Final = re.compile(rb"[A-Za-z0-9._:\[\]-]{1,255}")
_CALLERS_MAX: Final = 1_000
"""Callers of one client that are remembered, one for each address of the front and region."""


class Callers(Protocol):
    """Finds the callers of requests."""

    @property
    def user_count(self) -> int:
        """Number of access keys with a client of their own."""
        ...

    async def caller_of(self, request: HttpRequest) -> Caller:
        """Return the caller that sends a request.

        Raises:
            SqsError: The signature of the request is missing or wrong.
            BrokerError, ConnectionLostError: Brokers cannot tell now.
        """
        ...


@final
class WaitingCallers:
    """The callers of a front without a client: their requests wait for the client.

    As while the brokers of a running front are away, a request gets `ServiceUnavailable` after
    `REQUEST_S`: before SDKs hang up and send another one.
    """

    user_count = 0
    """See `Callers`."""

    def __init__(self) -> None:
        """Wait for `end`."""
        self.reason = "the front starts"
        """Reason of the wait."""
        self._callers: Callers | None = None
        self._ended = trio.Event()

    def end(self, callers: Callers | None) -> None:
        """End the wait of all requests: they go on by `callers`, or fail without."""
        self._callers = callers
        self._ended.set()

    async def caller_of(self, request: HttpRequest) -> Caller:
        """Wait; then see `Callers`.

        Raises:
            SqsError: There is no client yet.
        """
        with trio.move_on_after(REQUEST_S):
            await self._ended.wait()
        if self._callers is None:
            raise SqsError(SERVICE_UNAVAILABLE, f"The front cannot serve yet: {self.reason}")
        return await self._callers.caller_of(request)


@final
class CallersOfClient:
    """The callers that one client acts for: they differ in region, and in the front's address."""

    def __init__(
        self,
        client: Client,
        settings: FrontSettings,
        *,
        front_address: bytes,
        account: str,
        sender_id: str,
    ) -> None:
        """Serve callers by `client`; URLs name `front_address` to requests that name no host."""
        self._client = client
        self._settings = settings
        self._front_address = front_address
        self._account = account
        self._sender = ((SENDER_HEADER, sender_id.encode()),)
        self._state = FrontState(client)
        self._known: dict[tuple[bytes, str], Caller] = {}

    def caller(self, request: HttpRequest, region: str) -> Caller:
        """Return the caller of a request in a region."""
        host = request.headers.get(b"host", b"")
        caller = self._known.get((host, region))
        if caller is None:
            caller = self._new(host, region)
            if len(self._known) >= _CALLERS_MAX:
                self._known.clear()
            self._known[host, region] = caller
        return caller

    def _new(self, host: bytes, region: str) -> Caller:
        settings = self._settings
        authority = host if _AUTHORITY.fullmatch(host) else self._front_address
        scope = QueueScope(
            self._account,
            region,
            settings.account,
            settings.region,
            settings.public_url or f"http://{authority.decode()}",
        )
        return Caller(self._client, scope, self._sender, settings, self._state)


def _refuse_web_pages(request: HttpRequest) -> None:
    """Refuse what any web page could have a browser of this machine send (CSRF, DNS rebinding).

    Browsers tell of it by `Origin`, or by `Sec-Fetch-Site`. A GET of a page whose name leads to
    this machine has neither, but its name is in `Host`.

    Raises:
        SqsError: It may be such a request.
    """
    headers = request.headers
    is_of_page = b"origin" in headers or headers.get(b"sec-fetch-site", b"none") != b"none"
    if is_of_page or (request.method == b"GET" and not _is_local(headers.get(b"host", b""))):
        raise SqsError(
            ACCESS_DENIED,
            "Requests of web pages are not served without signatures (--no-auth).",
        )


def _is_local(authority: bytes) -> bool:
    host = authority.decode("latin-1").rpartition(":")[0] or authority.decode("latin-1")
    return host.lower() == "localhost" or is_loopback(host.strip("[]"))


@lru_cache(maxsize=1024)
def _claimed_region(scope: bytes) -> str:
    """Return the region of a signature; empty if none ends there."""
    found = _REGION.search(scope)
    return "" if found is None else found[1].decode()


@final
class UnsignedCallers:
    """The callers of a front that checks no signatures: all of them are the front itself."""

    def __init__(self, client: Client, settings: FrontSettings, *, address: str) -> None:
        """Serve every request by `client`.

        Args:
            client: Client of the front.
            settings: Settings of the front.
            address: Host and port of the front, for requests without a `Host` header.
        """
        self._region = settings.region
        self._callers = CallersOfClient(
            client,
            settings,
            front_address=address.encode(),
            account=settings.account,
            sender_id=_SENDER,
        )

    @property
    def user_count(self) -> int:
        """See `Callers`."""
        return 0

    async def caller_of(self, request: HttpRequest) -> Caller:
        """Return the caller that sends a request.

        The region is that which the request claims in its signature, or the default one.

        Raises:
            SqsError: A web page in a browser of this machine sends the request.
        """
        _refuse_web_pages(request)
        authorization = request.headers.get(b"authorization", b"")
        end = authorization.find(_SCOPE_END, 0, _SCOPE_BYTES)
        region = (_claimed_region(authorization[:end]) if end > 0 else "") or self._region
        return self._callers.caller(request, region)
