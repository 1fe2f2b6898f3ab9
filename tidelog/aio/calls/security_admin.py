"""The calls of `tidelog.SecurityAdmin`, for asyncio; written by `tools.face_calls`."""

from collections.abc import Iterable, Mapping
from functools import partial

from tidelog.aio.forwarding import Forwarding
from tidelog.client.admin.certificates import NodeCertificate
from tidelog.client.admin.security_admin import SecurityAdmin as InnerSecurityAdmin
from tidelog.wire.messages.access_keys import (
    AccessKeyDescription,
    CreatedAccessKey,
    GetSigningKeyReply,
)
from tidelog.wire.messages.keys import ChangedKeys, ListKeysReply
from tidelog.wire.messages.quotas import QuotaDescription
from tidelog.wire.messages.users import TokenDescription, UserDescription
from tidelog.wire.security.access_key import SigningScope


class SecurityAdmin(Forwarding[InnerSecurityAdmin]):
    """See `tidelog.SecurityAdmin`."""

    __slots__ = ()

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
        await self._guest.call(partial(self._inner.create_user, name, password))

    async def set_password(self, name: str, password: str | None) -> None:
        """Change the password of a user; connections that were opened with the old one end.

        Args:
            name: Name of the user.
            password: The new password; `None` removes it.

        Raises:
            ConfigError: The password is empty, or has characters that no password may have.
            InvalidRequestError: The user does not exist.
        """
        await self._guest.call(partial(self._inner.set_password, name, password))

    async def remove_user(self, name: str) -> bool:
        """Remove a user with its tokens, memberships, grants and quotas; end its connections.

        Return whether it existed.
        """
        return await self._guest.call(partial(self._inner.remove_user, name))

    async def list_users(self) -> list[UserDescription]:
        """Return all users, sorted by name."""
        return await self._guest.call(self._inner.list_users)

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
        return await self._guest.call(
            partial(self._inner.create_token, user, expires_in=expires_in, description=description)
        )

    async def list_tokens(self, user: str | None = None) -> list[TokenDescription]:
        """Return the tokens of a user, or all; sorted by user and time of creation.

        Args:
            user: Name of the user.
        """
        return await self._guest.call(partial(self._inner.list_tokens, user))

    async def revoke_token(self, token_id: str) -> bool:
        """Revoke a token, and end the connections that were opened with it.

        Return whether it existed.

        Args:
            token_id: The id of the token, such as `0123456789ab`, or the token itself.

        Raises:
            ConfigError: The text is neither.
        """
        return await self._guest.call(partial(self._inner.revoke_token, token_id))

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
        return await self._guest.call(
            partial(self._inner.create_access_key, user, account=account, description=description)
        )

    async def list_access_keys(self, user: str | None = None) -> list[AccessKeyDescription]:
        """Return the access keys of a user, or all, without secrets.

        They are sorted by user and time of creation.

        Args:
            user: Name of the user.
        """
        return await self._guest.call(partial(self._inner.list_access_keys, user))

    async def enable_access_key(self, access_key_id: str, *, is_enabled: bool = True) -> bool:
        """Enable an access key, or disable it: what gateways do for its user ends.

        Return whether it exists.

        Args:
            access_key_id: The id of the access key.
            is_enabled: Whether to enable it.
        """
        return await self._guest.call(
            partial(self._inner.enable_access_key, access_key_id, is_enabled=is_enabled)
        )

    async def remove_access_key(self, access_key_id: str) -> bool:
        """Remove an access key; what gateways do for its user ends. Return whether it existed.

        Args:
            access_key_id: The id of the access key.
        """
        return await self._guest.call(partial(self._inner.remove_access_key, access_key_id))

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
        return await self._guest.call(
            partial(
                self._inner.get_signing_key,
                access_key_id,
                scope,
                signed=signed,
                signature=signature,
            )
        )

    async def list_certificates(self) -> list[NodeCertificate]:
        """Return the certificate of TLS that each broker uses now, by node id.

        Each broker is asked for its own; one that does not answer within 6 s has an `error`.

        Raises:
            TidelogError: No broker answered within `ClientConfig.request_timeout`.
        """
        return await self._guest.call(self._inner.list_certificates)

    async def list_keys(self, topic: str | None = None) -> ListKeysReply:
        """Return the data keys of encrypted topics, and the master keys of all brokers.

        Raises:
            UnknownTopicError: There is no such topic.
        """
        return await self._guest.call(partial(self._inner.list_keys, topic))

    async def rotate_data_key(self, topic: str) -> list[ChangedKeys]:
        """Seal new records of a topic with a new data key; return the key.

        Raises:
            UnknownTopicError: There is no such topic.
            InvalidRequestError: The topic is not encrypted, or the broker lacks a master key.
            ConnectionLostError, RequestTimedOutError: The key may be there, or not.
        """
        return await self._guest.call(partial(self._inner.rotate_data_key, topic))

    async def rewrap_data_keys(self, topic: str | None = None) -> list[ChangedKeys]:
        """Wrap the data keys of a topic, or of all, by the newest master key; return those changed.

        Raises:
            UnknownTopicError: There is no such topic.
            InvalidRequestError: A broker lacks the newest master key.
        """
        return await self._guest.call(partial(self._inner.rewrap_data_keys, topic))

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
        return await self._guest.call(partial(self._inner.shred_data_keys, topic, list(key_ids)))

    async def alter_quotas(
        self,
        principal: str,
        *,
        set: Mapping[str, int | str] | None = None,
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
        return await self._guest.call(
            partial(self._inner.alter_quotas, principal, set=set, remove=list(remove))
        )

    async def list_quotas(self, principals: Iterable[str] | None = None) -> list[QuotaDescription]:
        """Return quotas with their use in the last seconds, `default` first, then by name.

        Args:
            principals: Principals to list, in their order; by default those that have quotas, or
                use some now.

        Raises:
            InvalidRequestError: A text is no principal.
        """
        return await self._guest.call(partial(self._inner.list_quotas, principals))
