"""Tokens, the broker's end: a secret of 256 random bits that the metadata have the SHA-256 of.

Pure, except for the clock.
"""

import hmac
from collections.abc import Callable
from typing import Final, final

from tidelog.broker.security.mechanism import Authenticated, Step, fail
from tidelog.coordinator.security.state import SecurityState
from tidelog.wire.env.env import Clock
from tidelog.wire.security.principal import user_principal
from tidelog.wire.security.token import parse_token

_NO_TOKEN: Final = bytes(32)


@final
class TokenExchange:
    """One proof by a token; see `broker.security.mechanism.Exchange`."""

    def __init__(self, security: Callable[[], SecurityState], clock: Clock) -> None:
        """Check against the tokens of `security`.

        `security` raises `RetriableError` while the metadata are not known.
        """
        self._security = security
        self._clock = clock
        self._claimed = ""

    @property
    def claimed(self) -> str:
        """See `broker.security.mechanism.Exchange`."""
        return self._claimed

    async def step(self, data: bytes) -> Step:
        """See `broker.security.mechanism.Exchange`."""
        security = self._security()
        try:
            parts = parse_token(data.decode())
        except UnicodeDecodeError as error:
            fail(error)
        if parts is None:
            fail()
        token_id = parts.token_id
        known = security.tokens.get(token_id)
        expected = _NO_TOKEN if known is None else known.sha256
        is_right = hmac.compare_digest(expected, parts.sha256)
        if known is None:
            fail()
        self._claimed = known.user
        expires_at_ms = known.expires_at_ms
        is_over = expires_at_ms is not None and expires_at_ms <= self._clock.now_ms()
        if not is_right or is_over:
            fail()

        def is_current() -> bool:
            return self._security().tokens.get(token_id) == known

        result = Authenticated(
            user_principal(known.user), expires_at_ms=expires_at_ms, is_current=is_current
        )
        return Step(b"", result)
