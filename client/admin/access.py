"""Administration of access: rules, roles, and reasons of decisions.

Shell: sends requests to any broker, and repeats them while that may help.
"""

from collections.abc import Iterable
from typing import final

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.wire.messages.access import (
    AccessExplanation,
    AccessRule,
    AlterAccessReply,
    AlterAccessRequest,
    ExplainAccessRequest,
    ListAccessRequest,
    RoleChange,
    RoleDescription,
)
from tidelog.wire.protocol import api
from tidelog.wire.security.access_rules import CLUSTER


@final
class AccessAdmin:
    """Grants and revokes access, and explains it; `docs/access.md` has all kinds and actions.

    A change is in force on all brokers when its method returns. Calls are repeated for up to
    `ClientConfig.request_timeout` while that may help. A cancelled change may or may not happen.

    All raise `NotAuthorizedError` without `access` on the cluster, and `InvalidRequestError` for a
    rule that could never match, with the reason.
    """

    def __init__(self, cluster: ClusterClient) -> None:
        """Use `client.access`."""
        self._cluster = cluster

    async def grant(
        self, principal: str, actions: str | Iterable[str], kind: str, *, name: str = CLUSTER
    ) -> AlterAccessReply:
        """Allow a principal actions, in addition to what it may do already.

        Args:
            principal: `user:NAME`, `role:NAME`, `anonymous`, or `*` for every principal.
            actions: Such as `read`, `read,write`, or `*` for all of the kind.
            kind: `topic`, `queue`, `group`, `staged` or `cluster`.
            name: A name, or `PREFIX*` for all names with a prefix; not for the cluster.
        """
        return await self._alter(AlterAccessRequest([_rule(principal, actions, kind, name=name)]))

    async def deny(
        self, principal: str, actions: str | Iterable[str], kind: str, *, name: str = CLUSTER
    ) -> AlterAccessReply:
        """Deny a principal actions, also those that other rules allow; see `grant`."""
        rule = _rule(principal, actions, kind, name=name, is_deny=True)
        return await self._alter(AlterAccessRequest([rule]))

    async def revoke(
        self,
        principal: str,
        actions: str | Iterable[str],
        kind: str,
        *,
        name: str = CLUSTER,
        is_deny: bool = False,
    ) -> AlterAccessReply:
        """Take actions from the rule of a principal for just this name or prefix; see `grant`.

        After that, no broker acknowledges or delivers anything by the revoked rule. With `is_deny`
        the actions are taken from the rule that denies. Actions that the rule lacks are no error.
        """
        rule = _rule(principal, actions, kind, name=name, is_deny=is_deny)
        return await self._alter(AlterAccessRequest([], [rule]))

    async def list_rules(
        self, principal: str | None = None, kind: str | None = None, name: str | None = None
    ) -> list[AccessRule]:
        """Return rules, sorted by principal, kind and name.

        Args:
            principal: Only those of this principal, without those of its roles.
            kind: Only those of this kind.
            name: Only those that match this name.
        """
        request = ListAccessRequest(principal, kind, name)
        reply = await self._cluster.call_any(api.LIST_ACCESS, request, is_repeatable=True)
        return reply.rules

    async def list_roles(self) -> list[RoleDescription]:
        """Return all roles with their members, sorted."""
        reply = await self._cluster.call_any(
            api.LIST_ACCESS, ListAccessRequest(None), is_repeatable=True
        )
        return reply.roles

    async def alter_role(
        self, name: str, *, add: Iterable[str] = (), remove: Iterable[str] = ()
    ) -> None:
        """Change the members of a role, which is created if it is missing.

        Args:
            name: The role.
            add: Names of users; members already are no error.
            remove: Names of users; no members are no error.
        """
        await self._alter(AlterAccessRequest([], roles=[RoleChange(name, [*add], [*remove])]))

    async def remove_role(self, name: str) -> None:
        """Remove a role with its rules; one that does not exist is no error."""
        await self._alter(AlterAccessRequest([], roles=[RoleChange(name, is_removed=True)]))

    async def explain(
        self,
        principal: str,
        action: str,
        kind: str,
        *,
        name: str = CLUSTER,
        roles: Iterable[str] = (),
    ) -> AccessExplanation:
        """Return why a principal may do something, or may not, and the command that would allow it.

        Args:
            principal: Such as `user:alice`; a principal may ask about itself without a rule.
            action: An action of the kind.
            kind: `topic`, `queue`, `group`, `staged` or `cluster`.
            name: Name of the resource, which need not exist.
            roles: Further roles, such as those that a token carries.
        """
        request = ExplainAccessRequest(principal, action, kind, name, [*roles])
        reply = await self._cluster.call_any(api.EXPLAIN_ACCESS, request, is_repeatable=True)
        (explanation,) = reply.explanations
        return explanation

    async def holders(
        self, action: str, kind: str, *, name: str = CLUSTER
    ) -> list[AccessExplanation]:
        """Return the principals that may do something, each with the rule that allows it.

        The principals are those with a rule, a role or a password; `*` stands for all others.
        """
        request = ExplainAccessRequest(None, action, kind, name)
        reply = await self._cluster.call_any(api.EXPLAIN_ACCESS, request, is_repeatable=True)
        return reply.explanations

    async def _alter(self, request: AlterAccessRequest) -> AlterAccessReply:
        return await self._cluster.call_any(api.ALTER_ACCESS, request, is_repeatable=True)


def _rule(
    principal: str,
    actions: str | Iterable[str],
    kind: str,
    *,
    name: str,
    is_deny: bool = False,
) -> AccessRule:
    words = actions.split(",") if isinstance(actions, str) else [*actions]
    return AccessRule(principal, kind, name, words, is_deny)
