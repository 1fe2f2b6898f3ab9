"""Callers of a front that checks signatures: users with access keys, each with a client of its own.

Shell: it asks brokers for signing keys, and owns the clients of users. The front keeps signing keys
in memory alone, and never the secrets that they are derived from.
"""

import logging
from typing import Final, final

import trio

from tidelog.client.client import Client
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.callers import CallersOfClient
from tidelog.gateway.sqs.http.messages import HttpRequest
from tidelog.gateway.sqs.protocol.errors import INTERNAL, SERVICE_UNAVAILABLE, SqsError
from tidelog.gateway.sqs.settings import FrontSettings
from tidelog.gateway.sqs.signature import (
    SERVICE_NAME,
    KeyedHash,
    SignatureClaim,
    check,
    claim_of,
    unknown_key,
    wrong_signature,
)
from tidelog.wire.env.env import Env
from tidelog.wire.env.loop_clock import loop_clock
from tidelog.wire.errors import (
    AuthenticationFailedError,
    InvalidRequestError,
    NotAuthorizedError,
    TidelogError,
)
from tidelog.wire.security.access_key import SigningKey, SigningScope, is_access_key_id

_log = logging.getLogger("tidelog.gateway")

FRESH_S: Final = 3.0
"""Seconds after which the front asks a broker again about a key in use, beside its requests."""
STALE_S: Final = 10.0
"""Seconds after which a request waits for that answer."""
IDLE_S: Final = 120.0
"""Seconds without a request after which the client of a user is closed: more than a long poll."""
_KEPT_S: Final = 600.0
"""Seconds after which the front forgets a signing key that no request has used."""
_KEYS_MAX: Final = 20_000
"""Signing keys that are remembered."""
_USERS_MAX: Final = 2_000
"""Clients of users at one time."""
_SIGNATURE_BYTES: Final = 32
_ASKED_MAX: Final = 64
"""Questions to brokers at one time: strangers cause some."""


@final
class _KnownKey:
    """A signing key that brokers have confirmed."""

    __slots__ = ("account", "checked_at", "is_asked", "key", "keyed", "user")

    def __init__(self, key: SigningKey, user: str, account: str, *, now: float) -> None:
        self.key = key
        self.keyed = KeyedHash(key.key)
        self.user = user
        self.account = account
        self.checked_at = now
        self.is_asked = False
        """Whether a task asks a broker about it."""


@final
class _User:
    """The client of an access key."""

    def __init__(self, known: _KnownKey, *, now: float) -> None:
        self.newest = known.key
        """The signing key that its connections prove."""
        self.used_at = now
        self.scope = trio.CancelScope()
        self.ending = trio.Event()
        """Set when its client is to be closed."""
        self.has_ended = trio.Event()
        self.is_settled = trio.Event()
        """Set when it is connected, or has failed to."""
        self.callers: CallersOfClient | None = None
        self.failure: TidelogError | None = None


@final
class SignedCallers:
    """The callers of signed requests."""

    def __init__(
        self,
        client: Client,
        settings: FrontSettings,
        nursery: trio.Nursery,
        *,
        address: str,
        env: Env,
    ) -> None:
        """Ask for signing keys by `client`, which acts for their users.

        Args:
            client: Client of the front, of a principal with the action `impersonate`.
            settings: Settings of the front.
            nursery: Runs the clients of users; its end closes them.
            address: Host and port of the front, for requests without a `Host` header.
            env: Clock of signatures.
        """
        self._client = client
        self._settings = settings
        self._nursery = nursery
        self._address = address.encode()
        self._clock = env.clock
        self._now = loop_clock()
        self._keys: dict[tuple[str, str, str], _KnownKey] = {}
        self._users: dict[str, _User] = {}
        self._asked = trio.CapacityLimiter(_ASKED_MAX)
        nursery.start_soon(self._forget_unused)

    @property
    def user_count(self) -> int:
        """See `Callers`."""
        return len(self._users)

    async def caller_of(self, request: HttpRequest) -> Caller:
        """Return the caller that has signed a request.

        Raises:
            SqsError: The signature is missing, wrong or old, or its access key does not exist.
            BrokerError, ConnectionLostError: Brokers cannot tell now.
        """
        claim = claim_of(request, now_s=self._clock.now_ms() / 1000)
        now = self._now()
        known = self._fresh_key(claim, now) or await self._ask(claim)
        user = self._users.get(claim.key_id)
        if user is None:
            user = self._begin(known)
        user.used_at = now
        if user.callers is None:
            await user.is_settled.wait()
            if user.failure is not None:
                raise user.failure
        if known.key.scope.date > user.newest.scope.date:
            user.newest = known.key
        assert user.callers is not None, "a settled user has callers or a failure"
        return user.callers.caller(request, claim.region)

    async def close(self) -> None:
        """Close the clients of users; what they still receive is returned to its queue."""
        users = list(self._users.values())
        for user in users:
            user.ending.set()
            if user.callers is None:
                user.scope.cancel()
        for user in users:
            await user.has_ended.wait()

    def _fresh_key(self, claim: SignatureClaim, now: float) -> _KnownKey | None:
        """Return the signing key of a request, whose signature it has checked.

        `None` if a broker must be asked first.

        Raises:
            SqsError: The signature is wrong.
        """
        known = self._keys.get((claim.key_id, claim.date, claim.region))
        if known is None:
            return None
        check(claim, known.keyed)
        age_s = now - known.checked_at
        if age_s >= STALE_S:
            return None
        if age_s >= FRESH_S and not known.is_asked:
            known.is_asked = True
            self._nursery.start_soon(self._ask_again, claim, known)
        return known

    async def _ask(self, claim: SignatureClaim) -> _KnownKey:
        """Ask a broker for the signing key of a request.

        Raises:
            SqsError: The access key does not exist, or the signature is wrong.
        """
        place = (claim.key_id, claim.date, claim.region)
        if not is_access_key_id(claim.key_id):
            raise unknown_key()
        scope = SigningScope(claim.date, claim.region, SERVICE_NAME)
        try:
            signature = bytes.fromhex(claim.signature)
        except ValueError:
            signature = b""
        if len(signature) != _SIGNATURE_BYTES:
            raise wrong_signature()
        try:
            async with self._asked:
                found = await self._client.security.get_signing_key(
                    claim.key_id, scope, signed=claim.string_to_sign, signature=signature
                )
        except (AuthenticationFailedError, InvalidRequestError, NotAuthorizedError) as error:
            raise SqsError(
                SERVICE_UNAVAILABLE, f"The front cannot act for users: {error}"
            ) from error
        if not found.is_known:
            self._forget(claim.key_id)
            raise unknown_key()
        if not found.signing_key:
            raise wrong_signature()
        key = SigningKey(claim.key_id, scope, found.signing_key)
        known = _KnownKey(key, found.user, found.account, now=trio.current_time())
        # The front trusts its own check alone.
        check(claim, known.keyed)
        if len(self._keys) >= _KEYS_MAX:
            self._keys.clear()
        self._keys[place] = known
        return known

    async def _ask_again(self, claim: SignatureClaim, known: _KnownKey) -> None:
        try:
            await self._ask(claim)
        except (SqsError, TidelogError):
            known.is_asked = False  # A request asks, and tells its client.

    async def _forget_unused(self) -> None:
        """Forget signing keys out of use, until cancelled: memory is no place to keep secrets."""
        while True:
            await trio.sleep(_KEPT_S / 10)
            oldest = trio.current_time() - _KEPT_S
            for place in [
                place for place, known in self._keys.items() if known.checked_at < oldest
            ]:
                del self._keys[place]

    def _forget(self, key_id: str) -> None:
        """Forget an access key that is gone, and close its client: brokers serve it no more."""
        for place in [each for each in self._keys if each[0] == key_id]:
            del self._keys[place]
        user = self._users.pop(key_id, None)
        if user is not None:
            user.scope.cancel()

    def _drop(self, user: _User) -> None:
        if self._users.get(user.newest.access_key_id) is user:
            del self._users[user.newest.access_key_id]

    def _begin(self, known: _KnownKey) -> _User:
        if len(self._users) >= _USERS_MAX:
            raise SqsError(
                SERVICE_UNAVAILABLE, "The front acts for too many users now. Please try again."
            )
        user = self._users[known.key.access_key_id] = _User(known, now=trio.current_time())
        self._nursery.start_soon(self._run, user, known)
        return user

    async def _run(self, user: _User, known: _KnownKey) -> None:
        """Keep the client of a user while it is used."""
        try:
            with user.scope:
                async with self._client.acting_for(lambda: user.newest) as client:
                    user.callers = CallersOfClient(
                        client,
                        self._settings,
                        front_address=self._address,
                        account=known.account or self._settings.account,
                        sender_id=f"user:{known.user}",
                    )
                    user.is_settled.set()
                    await _until_idle(user)
                    self._drop(user)  # Before it closes: the next request begins another one.
        except TidelogError as error:
            user.failure = error
        except Exception as error:  # noqa: BLE001  (the supervisor: others have clients, too)
            _log.error("the client of a user failed unexpectedly", exc_info=error)
            user.failure = SqsError(INTERNAL, "The client of the user failed.")
        finally:
            self._drop(user)
            if user.callers is None and user.failure is None:
                user.failure = unknown_key()
            user.is_settled.set()
            user.has_ended.set()


async def _until_idle(user: _User) -> None:
    """Return when a user has sent no request for some time, or its client is to be closed."""
    while not user.ending.is_set() and trio.current_time() < user.used_at + IDLE_S:
        with trio.move_on_at(user.used_at + IDLE_S):
            await user.ending.wait()
