"""Access keys, the broker's end: secrets that are derived and never stored, and their checks.

Pure, except for the clock. A key that was made with another secret of the cluster is unknown here.
"""

import hmac
from collections.abc import Callable
from typing import final

from tidelog.broker.requests.response import RequestContext
from tidelog.coordinator.security.records import AccessKeySet
from tidelog.coordinator.security.state import SecurityState
from tidelog.wire.env.env import Clock
from tidelog.wire.errors import AuthenticationFailedError, InvalidRequestError
from tidelog.wire.messages.access_keys import (
    AccessKeyDescription,
    CreatedAccessKey,
    GetSigningKeyReply,
    GetSigningKeyRequest,
    ImpersonateRequest,
    ListAccessKeysReply,
    ListAccessKeysRequest,
)
from tidelog.wire.security.access_key import (
    SIGNED_MAX_MS,
    SKEW_MS,
    AccessKeyName,
    SigningKey,
    SigningScope,
    impersonation_proof,
    is_scope_due,
    is_signed_by,
    root_id,
    root_of,
    secret_of,
    signing_key,
    time_of_signed,
)
from tidelog.wire.security.loopback import host_of, is_loopback


def require_private(context: RequestContext) -> None:
    """Check that nothing between a client and this broker can read the bytes of a connection.

    Raises:
        AuthenticationFailedError: It uses no TLS, and is of another machine.
    """
    if not context.is_encrypted and not is_loopback(host_of(context.peer)):
        raise AuthenticationFailedError(
            "this broker takes and gives credentials over TLS or on its own machine only; turn TLS"
            " on at the broker and in the client"
        )


@final
class AccessKeys:
    """The access keys of a cluster, with their secrets."""

    def __init__(
        self, security: Callable[[], SecurityState], clock: Clock, *, cluster_secret: bytes
    ) -> None:
        """Derive secrets from that of the cluster.

        `security` raises `RetriableError` while the metadata are not known.
        """
        self._security = security
        self._clock = clock
        self._root = root_of(cluster_secret)
        self.root_id = root_id(self._root)
        """Tells the secret of this cluster from others; it is no secret."""

    def created(self, access_key_id: str, nonce: bytes) -> CreatedAccessKey:
        """Return an access key with its secret, for the client that drew its nonce.

        Raises:
            InvalidRequestError: It is gone, has another nonce, or belongs to another secret.
        """
        known = self._security().access_keys.get(access_key_id)
        if known is None or not hmac.compare_digest(known.nonce, nonce):
            raise InvalidRequestError(
                f"access key {access_key_id} was removed meanwhile; create another one"
            )
        if known.root_id != self.root_id:
            raise InvalidRequestError(
                f"access key {access_key_id} was created by a broker with another"
                " cluster_secret_file; give all brokers the same one, and create another key"
            )
        return CreatedAccessKey(access_key_id, self._secret(known))

    def describe(
        self, request: ListAccessKeysRequest, attachment: memoryview
    ) -> ListAccessKeysReply:
        """Return access keys, as far as this node knows them."""
        del attachment
        found = [
            each
            for each in self._security().access_keys.values()
            if request.user in (None, each.user)
        ]
        found.sort(key=lambda each: (each.user, each.created_at_ms, each.access_key_id))
        return ListAccessKeysReply(
            [
                AccessKeyDescription(
                    each.access_key_id,
                    each.user,
                    each.account,
                    each.created_at_ms,
                    each.is_enabled,
                    each.root_id == self.root_id,
                    each.description,
                )
                for each in found
            ]
        )

    def signing_key(self, request: GetSigningKeyRequest) -> GetSigningKeyReply:
        """Return the signing key of a scope, if the user has signed by it now.

        Raises:
            InvalidRequestError: The request is of another time or scope.
        """
        scope = SigningScope(request.date, request.region, request.service)
        signed_ms = time_of_signed(request.signed, scope)
        now_ms = self._clock.now_ms()
        oldest_ms, newest_ms = now_ms - SIGNED_MAX_MS - SKEW_MS, now_ms + SKEW_MS
        if signed_ms is None or not oldest_ms <= signed_ms <= newest_ms:
            raise InvalidRequestError(
                "the signed request is not of this time and scope; check the clocks of gateway and"
                " broker"
            )
        known = self._usable(request.access_key_id)
        if known is None:
            return GetSigningKeyReply(is_known=False)
        key = signing_key(self._secret(known), scope)
        if not is_signed_by(key, request.signed, request.signature):
            return GetSigningKeyReply(is_known=True)
        return GetSigningKeyReply(True, key, known.user, known.account)

    def check_proof(self, request: ImpersonateRequest) -> AccessKeySet:
        """Return the access key of a gateway that has a signing key of it.

        Raises:
            AuthenticationFailedError: The key is none, or the proof is wrong or of another time.
        """
        known = self._usable(request.access_key_id)
        scope = SigningScope(request.date, request.region, request.service)
        now_ms = self._clock.now_ms()
        if known is not None and is_scope_due(scope, now_ms):
            key = SigningKey(known.access_key_id, scope, signing_key(self._secret(known), scope))
            is_right = hmac.compare_digest(impersonation_proof(key, request.time_ms), request.proof)
            if is_right and abs(request.time_ms - now_ms) <= SKEW_MS:
                return known
        raise AuthenticationFailedError(
            f"access key {request.access_key_id} does not exist, is disabled, or its proof is wrong"
            " or old; send a request that it has signed now"
        )

    def is_current(self, known: AccessKeySet) -> bool:
        """Return whether an access key is still there, and enabled."""
        return self._security().access_keys.get(known.access_key_id) == known

    def _usable(self, access_key_id: str) -> AccessKeySet | None:
        known = self._security().access_keys.get(access_key_id)
        if known is None or not known.is_enabled or known.root_id != self.root_id:
            return None
        return known

    def _secret(self, known: AccessKeySet) -> str:
        name = AccessKeyName(known.access_key_id, known.user, known.account)
        return secret_of(self._root, name, known.nonce)
