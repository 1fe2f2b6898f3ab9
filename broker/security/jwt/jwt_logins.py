"""The mechanism JWT: tokens of an identity provider, whose keys are fetched and kept.

Shell: owns the task that fetches. While the provider is down, the last keys serve on: no outage
there becomes one here.
"""

import math
from typing import Final, NoReturn, final

import trio

from tidelog.broker.config.jwt_rules import JwtRules
from tidelog.broker.security.jwt.jwt_verifier import JwtProblem, JwtRefusedError, verify_jwt
from tidelog.broker.security.jwt.refresh_schedule import RefreshSchedule
from tidelog.broker.security.jwt.verification_keys import JwksError, VerificationKeys, parse_jwks
from tidelog.broker.security.mechanism import Authenticated, Step, fail
from tidelog.broker.security.operator_inputs import FetchKeys
from tidelog.wire.env.env import Env
from tidelog.wire.errors import BrokerNotReadyError

JWT: Final = "JWT"
FETCH_S: Final = 10.0
"""Longest time of a fetch, in seconds."""
_WAIT_S: Final = 5.0
"""Longest time that a login waits for keys, in seconds."""
_TOLD_AGAIN_S: Final = 60.0
"""Time between two log lines about refusals with the same reason, in seconds."""


@final
class JwtLogins:
    """Proves identities by tokens of one provider."""

    def __init__(self, env: Env, rules: JwtRules, fetch: FetchKeys) -> None:
        """Accept tokens by `rules`; `run` must run in a task of its own."""
        self._env = env
        self._rules = rules
        self._fetch = fetch
        self._keys: VerificationKeys | None = None
        self._schedule = RefreshSchedule()
        self._is_wanted = trio.Event()
        self._has_ended = trio.Event()
        """Set at the end of the next fetch."""
        self._told_at_s: dict[JwtProblem, float] = {}

    async def run(self) -> None:
        """Fetch keys whenever that is due, until cancelled."""
        while True:
            while (wait_s := self._schedule.due_at_s() - trio.current_time()) > 0:
                with trio.move_on_after(wait_s):
                    await self._is_wanted.wait()
                self._is_wanted = trio.Event()
            await self._refresh()

    async def _refresh(self) -> None:
        reason = ""
        try:
            with trio.fail_after(FETCH_S):
                keys = parse_jwks(await self._fetch())
        except trio.TooSlowError:
            reason = f"no answer within {FETCH_S:.0f} s"
        except (JwksError, OSError) as error:
            reason = str(error)
        else:
            self._take(keys)
        self._schedule.ended(trio.current_time(), is_success=not reason)
        if reason:
            self._env.probe(
                "jwt_keys_not_fetched",
                severity="warning",
                reason=reason,
                attempts=self._schedule.failure_count,
                has_keys=self._keys is not None,
            )
        ended, self._has_ended = self._has_ended, trio.Event()
        ended.set()

    def _take(self, keys: VerificationKeys) -> None:
        before, self._keys = self._keys, keys
        if before is None or before.kids != keys.kids or self._schedule.failure_count:
            self._env.probe(
                "jwt_keys_fetched", keys=len(keys), skipped=keys.skipped_count, kids=keys.kids
            )

    def start(self) -> "JwtExchange":
        """Start a proof; see `broker.security.mechanism.Mechanisms`."""
        return JwtExchange(self)

    async def verify(self, token: bytes) -> Authenticated:
        """Return the identity that a token proves.

        Raises:
            AuthenticationFailedError: The token proves nothing here.
            BrokerNotReadyError: The keys of the provider are not known yet.
        """
        if self._keys is None:
            await self._wait_fetched()
        try:
            return self._verified(token)
        except JwtRefusedError as error:
            if error.problem is not JwtProblem.KEY:
                self._refuse(error)
            is_due = self._schedule.want(trio.current_time())
            self._is_wanted.set()
            if not is_due:
                self._refuse(error)
        await self._wait_fetched()
        try:
            return self._verified(token)
        except JwtRefusedError as error:
            self._refuse(error)

    def _verified(self, token: bytes) -> Authenticated:
        if self._keys is None:
            raise BrokerNotReadyError(
                "the keys of the identity provider are not known yet; the broker fetches them"
            )
        return verify_jwt(token, self._rules, self._keys, now_ms=self._env.clock.now_ms())

    async def _wait_fetched(self) -> None:
        with trio.move_on_after(_WAIT_S):
            await self._has_ended.wait()

    def _refuse(self, error: JwtRefusedError) -> NoReturn:
        """Refuse a token; the log has the reason, once a minute, and the client has not."""
        now_s = trio.current_time()
        if now_s - self._told_at_s.get(error.problem, -math.inf) >= _TOLD_AGAIN_S:
            self._told_at_s[error.problem] = now_s
            self._env.probe("jwt_refused", severity="warning", reason=str(error.problem))
        fail(error)


@final
class JwtExchange:
    """One proof by a token; see `broker.security.mechanism.Exchange`."""

    def __init__(self, logins: JwtLogins) -> None:
        """Check the token by `logins`."""
        self._logins = logins
        self._claimed = ""

    @property
    def claimed(self) -> str:
        """See `broker.security.mechanism.Exchange`."""
        return self._claimed

    async def step(self, data: bytes) -> Step:
        """See `broker.security.mechanism.Exchange`."""
        found = await self._logins.verify(data)
        self._claimed = found.principal.name
        return Step(b"", found)
