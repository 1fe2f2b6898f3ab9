"""Callers: from an HTTP request to the user that asks, its account and region, and its client.

Shell: it owns the clients of users.
"""

import re
from typing import Final, final

from tidelog.client.client import Client
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.http.messages import HttpRequest
from tidelog.gateway.sqs.names import QueueScope
from tidelog.gateway.sqs.settings import FrontSettings
from tidelog.gateway.sqs.shared import FrontState

_SENDER: Final = "anonymous"
"""`SenderId` of messages from callers that prove nothing."""
_REGION: Final = re.compile(rb"Credential=[^/,\s]+/\d{8}/([a-z][a-z0-9-]{0,31})/sqs/aws4_request")
_AUTHORITY: Final = re.compile(rb"[A-Za-z0-9._:\[\]-]{1,255}")
_CALLERS_MAX: Final = 1_000
"""Callers that are remembered, one for each address of the front and region."""


@final
class Callers:
    """The callers of a front that checks no signatures: all of them are the front itself."""

    def __init__(self, client: Client, settings: FrontSettings, *, address: str) -> None:
        """Serve every request by `client`.

        Args:
            client: Client of the front.
            settings: Settings of the front.
            address: Host and port of the front, for requests without a `Host` header.
        """
        self._client = client
        self._settings = settings
        self._address = address.encode()
        self._state = FrontState(client)
        self._known: dict[tuple[bytes, bytes | None], Caller] = {}

    async def caller_of(self, request: HttpRequest) -> Caller:
        """Return the caller that sends a request.

        The region is that which the request claims in its signature, or the default one.
        """
        host = request.headers.get(b"host", b"")
        claim = _REGION.search(request.headers.get(b"authorization", b""))
        region = None if claim is None else claim[1]
        caller = self._known.get((host, region))
        if caller is None:
            caller = self._new(host, region)
            if len(self._known) >= _CALLERS_MAX:
                self._known.clear()
            self._known[host, region] = caller
        return caller

    def _new(self, host: bytes, region: bytes | None) -> Caller:
        settings = self._settings
        authority = host if _AUTHORITY.fullmatch(host) else self._address
        scope = QueueScope(
            settings.account,
            settings.region if region is None else region.decode(),
            settings.account,
            settings.region,
            settings.public_url or f"http://{authority.decode()}",
        )
        return Caller(self._client, scope, _SENDER, settings, self._state)
