"""Administration of the security of a cluster: users, passwords, tokens, keys and quotas.

Shell: sends requests to brokers, draws salts and tokens, and hashes passwords in threads. No broker
sees a password or a token; brokers derive the secrets of access keys.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, final

from tidelog.client.admin import keys as key_admin
from tidelog.client.admin.certificates import NodeCertificate, list_certificates
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.wire.config.quotas import (
    parse_quota,
)
from tidelog.wire.errors import ConfigError
from tidelog.wire.messages.access_keys import (
    AccessKeyDescription,
    AccessKeyToCreate,
    AlterAccessKeysReply,
    AlterAccessKeysRequest,
    CreatedAccessKey,
    GetSigningKeyReply,
    GetSigningKeyRequest,
    ListAccessKeysRequest,
)
from tidelog.wire.messages.keys import ChangedKeys, KeyAction, ListKeysReply
from tidelog.wire.messages.quotas import (
    AlterQuotasRequest,
    ListQuotasRequest,
    QuotaDescription,
)
from tidelog.wire.messages.users import (
    AlterUsersReply,
    AlterUsersRequest,
    ListUsersReply,
    ListUsersRequest,
    PasswordHash,
    TokenDescription,
    TokenToSet,
    UserDescription,
    UserToSet,
)
from tidelog.wire.protocol import api
from tidelog.wire.security.access_key import (
    ID_BYTES as ACCESS_KEY_ID_BYTES,
)
from tidelog.wire.security.access_key import (
    NONCE_BYTES,
    SigningScope,
    is_access_key_id,
    is_account,
    new_access_key_id,
)
from tidelog.wire.security.token import (
    ID_BYTES,
    SECRET_BYTES,
    is_token_id,
    new_token,
    parse_token,
)

if TYPE_CHECKING:
    from tidelog.wire.security.scram import PasswordKeys

_SHORTEST_S: Final = 1.0


@final
class SecurityAdmin:
    """Administers users, their tokens and access keys, and the keys of encryption at rest.

    Calls are repeated for up to `ClientConfig.request_timeout` while that may help: each sets what
    is wanted, so a repetition does no harm. A cancelled change may or may not happen.

    All raise `BrokerError` when the broker refuses, with the reason, and `ConnectionLostError`
    when no broker answers.
    """

    def __init__(self, cluster: ClusterClient) -> None:
        """Use `client.security`."""
        self._cluster = cluster

    async def create_user(self, name: str, password: str | None = None) -> None:
        """Create a user.

        Args:
            name: 1 to 128 letters, digits and characters of `._@+/=-`.
            password: Its password; without one, the user authenticates by tokens or otherwise. It
                is hashed here, which takes some tenths of a second.

        Raises:
            ConfigError: The password is empty, or has characters that no password may have.
            InvalidRequestError: The user exists, or the name is not legal.
        """
        await self._set_user(name, password, is_new=True)

    async def set_password(self, name: str, password: str | None) -> None:
        """Change the password of a user; connections that were opened with the old one end.

        Args:
            name: Name of the user.
            password: The new password; `None` removes it.

        Raises:
            ConfigError: The password is empty, or has characters that no password may have.
            InvalidRequestError: The user does not exist.
        """
        await self._set_user(name, password, is_new=False)

    async def remove_user(self, name: str) -> bool:
        """Remove a user with its tokens, memberships, grants and quotas; end its connections.

        Return whether it existed.
        """
        return not (await self._alter(AlterUsersRequest([], [name], [], []))).unknown

    async def list_users(self) -> list[UserDescription]:
        """Return all users, sorted by name."""
        return (await self._list(None)).users

    async def create_token(
        self, user: str, *, expires_in: float | None = None, description: str = ""
    ) -> str:
        """Create a token of a user, and return it: nothing else has it, also no broker.

        Args:
            user: Name of the user.
            expires_in: Seconds from now until the end of the token; by default it has none.
            description: What the token is for, at most 256 characters; no secret.

        Raises:
            ConfigError: The time is too short.
            InvalidRequestError: The user does not exist.
        """
        if expires_in is not None and not expires_in >= _SHORTEST_S:
            raise ConfigError(f"a token lasts at least {_SHORTEST_S:g} s, not {expires_in:g} s")
        env = self._cluster.env
        token = new_token(env.random.randbytes(ID_BYTES), env.random.randbytes(SECRET_BYTES))
        parts = parse_token(token)
        assert parts is not None, "a new token is one"
        expires_at_ms = (
            None if expires_in is None else env.clock.now_ms() + round(expires_in * 1000)
        )
        wanted = TokenToSet(parts.token_id, user, parts.sha256, expires_at_ms, description)
        await self._alter(AlterUsersRequest([], [], [wanted], []))
        return token

    async def list_tokens(self, user: str | None = None) -> list[TokenDescription]:
        """Return the tokens of a user, or all; sorted by user and time of creation.

        Args:
            user: Name of the user.
        """
        return (await self._list(user)).tokens

    async def revoke_token(self, token_id: str) -> bool:
        """Revoke a token, and end the connections that were opened with it.

        Return whether it existed.

        Args:
            token_id: The id of the token, such as `0123456789ab`, or the token itself.

        Raises:
            ConfigError: The text is neither.
        """
        parts = parse_token(token_id)
        wanted = token_id if parts is None else parts.token_id
        if not is_token_id(wanted):
            raise ConfigError("the id of a token has 12 hexadecimal digits; list the tokens")
        return not (await self._alter(AlterUsersRequest([], [], [], [wanted]))).unknown

    async def create_access_key(
        self, user: str, *, account: str = "", description: str = ""
    ) -> CreatedAccessKey:
        """Create an access key of a user, for programs that sign requests as for AWS.

        Return it with its secret: no broker has it, and this is the only time that it is shown.

        Args:
            user: Name of the user.
            account: Twelve digits; by default, the account of the gateway.
            description: What the key is for, at most 256 characters; no secret.

        Raises:
            ConfigError: The account is none.
            AuthenticationFailedError: The connection uses no TLS, and goes to another machine.
            InvalidRequestError: The user does not exist, or has too many access keys.
        """
        if account and not is_account(account):
            raise ConfigError(f"account {account!r} is none; write twelve digits")
        random = self._cluster.env.random
        wanted = AccessKeyToCreate(
            new_access_key_id(random.randbytes(ACCESS_KEY_ID_BYTES)),
            user,
            random.randbytes(NONCE_BYTES),
            account,
            description,
        )
        return (await self._alter_keys(AlterAccessKeysRequest([wanted]))).created[0]

    async def list_access_keys(self, user: str | None = None) -> list[AccessKeyDescription]:
        """Return the access keys of a user, or all, without secrets.

        They are sorted by user and time of creation.

        Args:
            user: Name of the user.
        """
        request = ListAccessKeysRequest(user)
        reply = await self._cluster.call_any(api.LIST_ACCESS_KEYS, request, is_repeatable=True)
        return reply.access_keys

    async def enable_access_key(self, access_key_id: str, *, is_enabled: bool = True) -> bool:
        """Enable an access key, or disable it: what gateways do for its user ends.

        Return whether it exists.

        Args:
            access_key_id: The id of the access key.
            is_enabled: Whether to enable it.
        """
        ids = [_checked_key_id(access_key_id)]
        request = AlterAccessKeysRequest(
            [], enable=ids if is_enabled else [], disable=[] if is_enabled else ids
        )
        return not (await self._alter_keys(request)).unknown

    async def remove_access_key(self, access_key_id: str) -> bool:
        """Remove an access key; what gateways do for its user ends. Return whether it existed.

        Args:
            access_key_id: The id of the access key.
        """
        request = AlterAccessKeysRequest([], [_checked_key_id(access_key_id)])
        return not (await self._alter_keys(request)).unknown

    async def get_signing_key(
        self, access_key_id: str, scope: SigningScope, *, signed: bytes, signature: bytes
    ) -> GetSigningKeyReply:
        """Return the signing key of a scope to a gateway that has a request signed by it.

        Args:
            access_key_id: The id of the access key, as in the request.
            scope: The scope of the request.
            signed: The text that the user has signed (AWS: string to sign).
            signature: The 32 bytes of the signature.

        Raises:
            AuthenticationFailedError: The connection uses no TLS, and goes to another machine.
            InvalidRequestError: The request is of another time or scope.
            NotAuthorizedError: The gateway may not act for users.
        """
        request = GetSigningKeyRequest(access_key_id, *scope, signed, signature)
        return await self._cluster.call_any(api.GET_SIGNING_KEY, request, is_repeatable=True)

    async def list_certificates(self) -> list[NodeCertificate]:
        """Return the certificate of TLS that each broker uses now, by node id.

        Each broker is asked for its own; one that does not answer within 6 s has an `error`.

        Raises:
            TidelogError: No broker answered within `ClientConfig.request_timeout`.
        """
        return await list_certificates(self._cluster)

    async def list_keys(self, topic: str | None = None) -> ListKeysReply:
        """Return the data keys of encrypted topics, and the master keys of all brokers.

        Raises:
            UnknownTopicError: There is no such topic.
        """
        return await key_admin.list_keys(self._cluster, topic)

    async def rotate_data_key(self, topic: str) -> list[ChangedKeys]:
        """Seal new records of a topic with a new data key; return the key.

        Raises:
            UnknownTopicError: There is no such topic.
            InvalidRequestError: The topic is not encrypted, or the broker lacks a master key.
            ConnectionLostError, RequestTimedOutError: The key may be there, or not.
        """
        return await key_admin.alter_keys(self._cluster, KeyAction.ROTATE, topic)

    async def rewrap_data_keys(self, topic: str | None = None) -> list[ChangedKeys]:
        """Wrap the data keys of a topic, or of all, by the newest master key; return those changed.

        Raises:
            UnknownTopicError: There is no such topic.
            InvalidRequestError: A broker lacks the newest master key.
        """
        return await key_admin.alter_keys(self._cluster, KeyAction.REWRAP, topic)

    async def shred_data_keys(self, topic: str, key_ids: Iterable[int] = ()) -> list[ChangedKeys]:
        """Delete data keys of a topic, so that their records cannot be read any more.

        Args:
            topic: Name of the topic.
            key_ids: Data keys to delete. By default new records get a new key, and all others are
                deleted, those of staged records too.

        Raises:
            UnknownTopicError: There is no such topic.
            InvalidRequestError: A key seals new records, transactions are being appended, or the
                broker lacks a master key.
            ConnectionLostError, RequestTimedOutError: The keys may be deleted, or not.
        """
        return await key_admin.alter_keys(self._cluster, KeyAction.SHRED, topic, key_ids=key_ids)

    async def alter_quotas(
        self,
        principal: str,
        *,
        set: Mapping[str, int | str] | None = None,  # noqa: A002  (the word of the command line)
        remove: Iterable[str] = (),
    ) -> dict[str, int]:
        """Change quotas of a principal, all or none; return all of its quotas.

        Args:
            principal: `user:NAME`, `anonymous`, or `default` for each principal without quotas of
                its own.
            set: Values by name, such as `{"produce_bytes_per_s": "10MiB", "queues_max": 5}`.
            remove: Names of quotas to remove; `*` removes all of them.

        Raises:
            InvalidConfigError: There is no such quota, or it cannot have this value.
            InvalidRequestError: The text is no principal.
        """
        values = {name: parse_quota(name, str(value)) for name, value in (set or {}).items()}
        request = AlterQuotasRequest(principal, values, list(remove))
        reply = await self._cluster.call_any(api.ALTER_QUOTAS, request, is_repeatable=True)
        return reply.values

    async def list_quotas(self, principals: Iterable[str] | None = None) -> list[QuotaDescription]:
        """Return quotas with their use in the last seconds, `default` first, then by name.

        Args:
            principals: Principals to list, in their order; by default those that have quotas, or
                use some now.

        Raises:
            InvalidRequestError: A text is no principal.
        """
        names = None if principals is None else list(principals)
        request = ListQuotasRequest(names)
        reply = await self._cluster.call_controller(api.LIST_QUOTAS, request, is_repeatable=True)
        return reply.quotas

    async def _set_user(self, name: str, password: str | None, *, is_new: bool) -> None:
        hashed = None if password is None else await self._hashed(password)
        await self._alter(AlterUsersRequest([UserToSet(name, hashed, is_new)], [], [], []))

    async def _hashed(self, password: str) -> PasswordHash:
        # Not at the top: the other calls need no SCRAM.
        from tidelog.wire.security import scram  # noqa: PLC0415

        env = self._cluster.env
        by = scram.SaltedBy(env.random.randbytes(scram.SALT_BYTES), scram.ITERATIONS)

        def work() -> "PasswordKeys":
            return scram.password_keys(scram.salted_password(password, by), by)

        return PasswordHash(*await env.run_in_thread(work))

    async def _alter_keys(self, request: AlterAccessKeysRequest) -> AlterAccessKeysReply:
        return await self._cluster.call_any(api.ALTER_ACCESS_KEYS, request, is_repeatable=True)

    async def _alter(self, request: AlterUsersRequest) -> AlterUsersReply:
        return await self._cluster.call_any(api.ALTER_USERS, request, is_repeatable=True)

    async def _list(self, user: str | None) -> ListUsersReply:
        request = ListUsersRequest(user)
        return await self._cluster.call_any(api.LIST_USERS, request, is_repeatable=True)


def _checked_key_id(text: str) -> str:
    if not is_access_key_id(text):
        raise ConfigError("the id of an access key is TDLA and 16 letters or digits; list the keys")
    return text
