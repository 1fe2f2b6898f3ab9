"""The calls of `tidelog.AccessAdmin`, which wait; written by `tools.face_calls`."""

from collections.abc import Iterable
from functools import partial

from tidelog.blocking.forwarding import Forwarding
from tidelog.client.admin.access import AccessAdmin as InnerAccessAdmin
from tidelog.wire.messages.access import (
    AccessExplanation,
    AccessRule,
    AlterAccessReply,
    RoleDescription,
)
from tidelog.wire.security.access_rules import CLUSTER


class AccessAdmin(Forwarding[InnerAccessAdmin]):
    """See `tidelog.AccessAdmin`."""

    __slots__ = ()

    def grant(
        self, principal: str, actions: str | Iterable[str], kind: str, *, name: str = CLUSTER
    ) -> AlterAccessReply:
        """Allow a principal actions, in addition to what it may do already.

        Args:
            principal: `user:NAME`, `role:NAME`, `anonymous`, or `*` for every principal.
            actions: Such as `read`, `read,write`, or `*` for all of the kind.
            kind: `topic`, `queue`, `group`, `staged` or `cluster`.
            name: A name, or `PREFIX*` for all names with a prefix; not for the cluster.
        """
        return self._thread.call(partial(self._inner.grant, principal, actions, kind, name=name))

    def deny(
        self, principal: str, actions: str | Iterable[str], kind: str, *, name: str = CLUSTER
    ) -> AlterAccessReply:
        """Deny a principal actions, also those that other rules allow; see `grant`."""
        return self._thread.call(partial(self._inner.deny, principal, actions, kind, name=name))

    def revoke(
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
        return self._thread.call(
            partial(self._inner.revoke, principal, actions, kind, name=name, is_deny=is_deny)
        )

    def list_rules(
        self, principal: str | None = None, kind: str | None = None, name: str | None = None
    ) -> list[AccessRule]:
        """Return rules, sorted by principal, kind and name.

        Args:
            principal: Only those of this principal, without those of its roles.
            kind: Only those of this kind.
            name: Only those that match this name.
        """
        return self._thread.call(partial(self._inner.list_rules, principal, kind, name))

    def list_roles(self) -> list[RoleDescription]:
        """Return all roles with their members, sorted."""
        return self._thread.call(self._inner.list_roles)

    def alter_role(self, name: str, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> None:
        """Change the members of a role, which is created if it is missing.

        Args:
            name: The role.
            add: Names of users; members already are no error.
            remove: Names of users; no members are no error.
        """
        self._thread.call(partial(self._inner.alter_role, name, add=list(add), remove=list(remove)))

    def remove_role(self, name: str) -> None:
        """Remove a role with its rules; one that does not exist is no error."""
        self._thread.call(partial(self._inner.remove_role, name))

    def explain(
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
        return self._thread.call(
            partial(self._inner.explain, principal, action, kind, name=name, roles=list(roles))
        )

    def holders(self, action: str, kind: str, *, name: str = CLUSTER) -> list[AccessExplanation]:
        """Return the principals that may do something, each with the rule that allows it.

        The principals are those with a rule, a role or a password; `*` stands for all others.
        """
        return self._thread.call(partial(self._inner.holders, action, kind, name=name))
