"""Logins of a client: each new connection proves the identity, and renews it before its end.

Shell: sends requests, calls the program for fresh tokens, and salts passwords in threads.
"""

from inspect import isawaitable
from typing import Final, NamedTuple, cast, final

import trio

from tidelog.client.config import ClientConfig
from tidelog.client.security.exchange import (
    LoginSteps,
    SaltPassword,
    login_by_password,
    login_by_token,
)
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    AuthenticationFailedError,
    BrokerError,
    ConfigError,
    ConnectionLostError,
    TidelogError,
    WireFormatError,
)
from tidelog.wire.messages.access_keys import ImpersonateReply, ImpersonateRequest
from tidelog.wire.messages.handshake import AuthenticateReply
from tidelog.wire.protocol import api
from tidelog.wire.security.access_key import SigningKey, impersonation_proof
from tidelog.wire.security.loopback import host_of, is_loopback
from tidelog.wire.transport.rpc import RpcConnection

_NONCE_BYTES: Final = 24
_RENEWED_AT: Final = 0.8
"""Part of the time until the end of the credentials after which they are renewed."""
_RETRY_S: Final = 5.0
"""Mean seconds between two attempts after one has failed."""
_PAUSE_S: Final = 0.1
"""Seconds between two attempts at least, also when a token ends at once."""


class Login(NamedTuple):
    """A proven identity."""

    principal: str
    """That of the requests of the connection; empty for an anonymous one."""
    lifetime_s: float | None
    """Seconds after which a renewal has later credentials; `None` if it never has."""


@final
class Logins:
    """The logins of all connections of one client."""

    def __init__(self, config: ClientConfig, env: Env) -> None:
        """Use the credentials of `config`, which has some, or acts for a user."""
        self._config = config
        self._env = env
        self._salted: dict[SaltPassword, bytes] = {}
        """Salted passwords, each of which takes most of a second."""
        self._salting = trio.Lock()
        """Many connections at once need the same one."""

    def login_of(self, connection: RpcConnection) -> "ConnectionLogin":
        """Return the login of a new connection."""
        return ConnectionLogin(self, connection, self._env)

    async def begin(self, connection: RpcConnection) -> Login:
        """Prove the identity on a connection, and act for a user, for the first time or again.

        Raises:
            AuthenticationFailedError: The credentials are wrong, or the connection is not private.
            BrokerError: The broker cannot check them now, or does not know the mechanism; or the
                principal may not act for users.
            ConnectionLostError: The connection broke.
        """
        config = self._config
        principal, lifetimes = "", list[int | None]()
        if config.user is not None or config.token is not None:
            reply = await self._authenticate(connection)
            principal = reply.principal
            if callable(config.token):
                lifetimes.append(reply.lifetime_ms)
        if config.impersonate is not None:
            acting = await self._impersonate(connection, config.impersonate())
            principal = acting.principal
            lifetimes.append(acting.lifetime_ms)
        known = [each for each in lifetimes if each is not None]
        return Login(principal, min(known) / 1000 if known else None)

    async def _impersonate(self, connection: RpcConnection, key: SigningKey) -> ImpersonateReply:
        now_ms = self._env.clock.now_ms()
        request = ImpersonateRequest(
            key.access_key_id, *key.scope, now_ms, impersonation_proof(key, now_ms)
        )
        _check_private(connection)
        return await connection.ask(api.IMPERSONATE, request)

    async def _authenticate(self, connection: RpcConnection) -> AuthenticateReply:
        _check_private(connection)
        steps = await self._steps()
        step = next(steps)
        try:
            while True:
                if isinstance(step, SaltPassword):
                    step = steps.send(await self._salted_password(step))
                else:
                    reply: AuthenticateReply = await connection.ask(api.AUTHENTICATE, step)
                    step = steps.send(reply)
        except StopIteration as end:
            last: AuthenticateReply = end.value
            return last

    async def _steps(self) -> LoginSteps:
        token = self._config.token
        if token is None:
            assert self._config.user is not None, "there are credentials"
            return login_by_password(self._config.user, self._env.random.randbytes(_NONCE_BYTES))
        return login_by_token(token if isinstance(token, str) else await self._fresh_token())

    async def _fresh_token(self) -> str:
        """Return a token of the program.

        Raises:
            AuthenticationFailedError: The program gave none.
        """
        source = self._config.token
        assert callable(source), "the program has a source"
        try:
            # In a thread: a source without `async` may wait for another service.
            found = await self._env.run_in_thread(source)
            token = cast("object", await found if isawaitable(found) else found)
        except (BrokerError, ConnectionLostError):
            raise
        except TidelogError as error:  # Such as that of a file that cannot be read now.
            raise AuthenticationFailedError(str(error)) from error
        except Exception as error:
            # Without its text, which may have a secret of the program.
            raise AuthenticationFailedError(
                f"the token callable raised {type(error).__name__}; the log of the program may say"
                " more"
            ) from error
        if not isinstance(token, str) or not token:
            raise AuthenticationFailedError(
                f"the token callable must return a token, not {type(token).__name__}"
            )
        return token

    async def _salted_password(self, by: SaltPassword) -> bytes:
        from tidelog.wire.security.scram import SaltedBy, salted_password  # noqa: PLC0415

        password = self._config.password or ""
        async with self._salting:
            if by not in self._salted:
                work = lambda: salted_password(password, SaltedBy(*by))  # noqa: E731
                try:
                    found = await self._env.run_in_thread(work)
                except ConfigError as error:
                    raise AuthenticationFailedError(str(error)) from error
                self._salted = {by: found}  # One: another salt means another password.
            return self._salted[by]


@final
class ConnectionLogin:
    """The login of one connection, and its renewals."""

    def __init__(self, logins: Logins, connection: RpcConnection, env: Env) -> None:
        """Log `connection` in; `keep` must run in a task of its own, also before `begin`."""
        self._logins = logins
        self._connection = connection
        self._env = env
        self.principal = ""
        """Text of the principal that the broker has confirmed; empty before that."""
        self._expires_at: float | None = None
        """End of the credentials on trio's clock, which jumps with no wrong clock."""
        self._is_complete = trio.Event()

    async def begin(self) -> None:
        """Prove the identity; raises as `Logins.begin` does."""
        login = await self._logins.begin(self._connection)
        self.principal = login.principal
        self._note_end(login)
        self._is_complete.set()

    def _note_end(self, login: Login) -> None:
        lifetime_s, now = login.lifetime_s, trio.current_time()
        self._expires_at = None if lifetime_s is None else now + lifetime_s

    async def keep(self) -> None:
        """Renew the identity before its end, while the connection lasts."""
        await self._is_complete.wait()
        has_failed = False
        while self._expires_at is not None:
            left_s = max(0.0, self._expires_at - trio.current_time())
            wait_s = left_s * _RENEWED_AT
            if has_failed:
                wait_s = min(wait_s, _RETRY_S * self._env.random.uniform(0.5, 1.5))
            await trio.sleep(max(wait_s, _PAUSE_S))
            try:
                login = await self._logins.begin(self._connection)
            except (BrokerError, ConnectionLostError, WireFormatError) as error:
                if self._connection.is_lost:
                    return
                has_failed = True
                self._env.probe(
                    "client.renewal_failed",
                    severity="warning",
                    address=self._connection.peer,
                    reason=str(error),
                )
            else:
                has_failed = False
                self._note_end(login)


def _check_private(connection: RpcConnection) -> None:
    """Check that nothing between this client and the broker can read a connection.

    Raises:
        AuthenticationFailedError: It uses no TLS, and goes to another machine.
    """
    if not (connection.is_encrypted or is_loopback(host_of(connection.peer))):
        raise AuthenticationFailedError(
            f"{connection.peer} is reached without TLS, over which credentials would be"
            " readable; turn TLS on, or remove user, password and token"
        )
