"""Handlers of ALTER_ACCESS_KEYS and GET_SIGNING_KEY: access keys, and what gateways need of them.

Shell. Both replies have secrets, so they go over TLS or stay on the machine.
"""

from collections.abc import Iterator
from typing import Final, final

from tidelog.broker.audit.event import AuditEvent, AuditKind
from tidelog.broker.handlers.feature_level import require_access_keys
from tidelog.broker.requests.response import RequestContext, ResponseHandle
from tidelog.broker.security.access_keys import AccessKeys, require_private
from tidelog.broker.security.barrier import wait_in_force
from tidelog.coordinator.node import ClusterNode
from tidelog.coordinator.security.commands import (
    AccessKeyCommand,
    CreateAccessKey,
    EnableAccessKey,
    RemoveAccessKey,
)
from tidelog.wire.errors import AuthenticationFailedError, InvalidRequestError
from tidelog.wire.messages.access_keys import (
    AlterAccessKeysReply,
    AlterAccessKeysRequest,
    GetSigningKeyRequest,
)

SIGNATURE: Final = "AWS4-HMAC-SHA256"
"""Mechanism of failures in the audit."""
_DECIDE_TIMEOUT_S: Final = 10.0
_CHANGES_MAX: Final = 1_000
"""Changes of one request: each is one entry of the metadata log."""


@final
class AccessKeysHandler:
    """Changes access keys, and gives their signing keys to gateways."""

    def __init__(self, cluster: ClusterNode, keys: AccessKeys) -> None:
        """Serve requests at one node."""
        self._cluster = cluster
        self._keys = keys

    def get_signing_key(self, request: GetSigningKeyRequest, response: ResponseHandle) -> None:
        """Return the signing key of a user to a gateway.

        Raises:
            AuthenticationFailedError: Others could read the reply.
            InvalidRequestError: The signed request is of another time or scope.
        """
        require_private(response.context)
        reply = self._keys.signing_key(request)
        if not reply.signing_key:
            _audit_failure(request, response.context)
        response.reply(reply)

    async def alter(self, request: AlterAccessKeysRequest) -> AlterAccessKeysReply:
        """Change access keys. On cancellation or an error, some changes may be made.

        Raises:
            InvalidRequestError: A user does not exist or has too many keys, or an id is in use.
            BrokerNotReadyError: The cluster is new, and has no feature level yet.
            RequestTimedOutError: The voters have no majority; the changes may be made.
        """
        commands = [*_commands(request, self._keys.root_id)]
        if len(commands) > _CHANGES_MAX:
            raise InvalidRequestError(
                f"{len(commands):,} changes of access keys in one request, the limit is"
                f" {_CHANGES_MAX:,}; send several requests"
            )
        await require_access_keys(self._cluster)
        known = self._cluster.metadata.state.security.access_keys
        named = (*request.remove, *request.enable, *request.disable)
        unknown = [each for each in dict.fromkeys(named) if each not in known]
        for command in commands:
            await self._cluster.command_client.submit(command, timeout_s=_DECIDE_TIMEOUT_S)
        # Replies by removed keys end on all brokers before this one is sent.
        await wait_in_force(self._cluster)
        created = [self._keys.created(each.access_key_id, each.nonce) for each in request.create]
        return AlterAccessKeysReply(created, unknown)


def _audit_failure(request: GetSigningKeyRequest, context: RequestContext) -> None:
    """Note a wrong signature, or an unknown access key; events like it are folded."""
    detail = {"mechanism": SIGNATURE, "access_key_id": request.access_key_id}
    result = AuthenticationFailedError.code.name
    context.audit.note(
        AuditEvent(AuditKind.AUTHENTICATION, "sign", result, context.origin, detail=detail)
    )


def _commands(request: AlterAccessKeysRequest, root_id: bytes) -> Iterator[AccessKeyCommand]:
    for key in request.create:
        yield CreateAccessKey(
            key.access_key_id, key.user, key.account, key.nonce, root_id, key.description
        )
    for access_key_id in request.remove:
        yield RemoveAccessKey(access_key_id)
    for access_key_id in request.enable:
        yield EnableAccessKey(access_key_id, is_enabled=True)
    for access_key_id in request.disable:
        yield EnableAccessKey(access_key_id, is_enabled=False)
