"""Handlers of ALTER_USERS and LIST_USERS: users, their passwords and their tokens."""

from collections import Counter
from collections.abc import Iterator
from typing import Final, final

from tidelog.broker.handlers.feature_level import require_security
from tidelog.broker.security.barrier import wait_in_force
from tidelog.coordinator.node import ClusterNode
from tidelog.coordinator.security.commands import (
    RemoveToken,
    RemoveUser,
    SetToken,
    SetUser,
    UserCommand,
)
from tidelog.coordinator.security.records import ScramCredential
from tidelog.wire.errors import InvalidRequestError
from tidelog.wire.messages.users import (
    AlterUsersReply,
    AlterUsersRequest,
    ListUsersReply,
    ListUsersRequest,
    PasswordHash,
    TokenDescription,
    UserDescription,
)

_DECIDE_TIMEOUT_S: Final = 10.0
_CHANGES_MAX: Final = 1_000
"""Changes of one request: each is one entry of the metadata log."""


@final
class UsersHandler:
    """Changes and lists users."""

    def __init__(self, cluster: ClusterNode) -> None:
        """Serve requests at one node."""
        self._cluster = cluster

    async def alter(self, request: AlterUsersRequest) -> AlterUsersReply:
        """Change users and tokens. On cancellation or an error, some changes may be made.

        Raises:
            InvalidRequestError: A user exists or does not, or a name is not legal.
            BrokerNotReadyError: The cluster is new, and has no feature level yet.
            RequestTimedOutError: The voters have no majority; the changes may be made.
        """
        commands = [*_commands(request)]
        if len(commands) > _CHANGES_MAX:
            raise InvalidRequestError(
                f"{len(commands):,} changes of users in one request, the limit is"
                f" {_CHANGES_MAX:,}; send several requests"
            )
        await require_security(self._cluster)
        unknown = self._unknown(request)
        for command in commands:
            await self._cluster.command_client.submit(command, timeout_s=_DECIDE_TIMEOUT_S)
        # Replies by removed users and tokens end on all brokers before this one is sent.
        await wait_in_force(self._cluster)
        return AlterUsersReply(unknown)

    def list_users(self, request: ListUsersRequest, attachment: memoryview) -> ListUsersReply:
        """Return users and tokens, as far as this node knows them."""
        del attachment
        security = self._cluster.metadata.state.security
        wanted = request.user
        tokens = [each for each in security.tokens.values() if wanted in (None, each.user)]
        tokens.sort(key=lambda each: (each.user, each.created_at_ms, each.token_id))
        counts = Counter(each.user for each in tokens)
        return ListUsersReply(
            [
                UserDescription(each.name, each.credential is not None, counts[each.name])
                for _, each in sorted(security.users.items())
                if wanted in (None, each.name)
            ],
            [
                TokenDescription(
                    each.token_id,
                    each.user,
                    each.created_at_ms,
                    each.expires_at_ms,
                    each.description,
                )
                for each in tokens
            ],
        )

    def _unknown(self, request: AlterUsersRequest) -> list[str]:
        security = self._cluster.metadata.state.security
        users = [each for each in request.remove_users if each not in security.users]
        return users + [each for each in request.remove_tokens if each not in security.tokens]


def _commands(request: AlterUsersRequest) -> Iterator[UserCommand]:
    for user in request.set_users:
        yield SetUser(user.name, _credential(user.password), user.is_new, not user.is_new)
    for name in request.remove_users:
        yield RemoveUser(name)
    for token in request.set_tokens:
        yield SetToken(
            token.token_id, token.user, token.sha256, token.expires_at_ms, token.description
        )
    for token_id in request.remove_tokens:
        yield RemoveToken(token_id)


def _credential(password: PasswordHash | None) -> ScramCredential | None:
    if password is None:
        return None
    return ScramCredential(
        password.salt, password.iterations, password.stored_key, password.server_key
    )
