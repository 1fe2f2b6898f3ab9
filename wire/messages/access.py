"""Messages about access: rules, roles, and the reasons of decisions.

Pure: declarations. `docs/access.md` explains rules; `wire.security.access_rules` has all actions.
"""

import msgspec

from tidelog.wire.messages.field_types import Listed


class AccessRule(msgspec.Struct, frozen=True, array_like=True):
    """A rule of access (Kafka: AclBinding)."""

    principal: str
    """`user:NAME`, `role:NAME`, `anonymous`, or `*` for every principal."""
    kind: str
    """`topic`, `queue`, `group`, `staged` or `cluster`."""
    pattern: str
    """A name, or `PREFIX*` for all names with a prefix; `cluster` for the cluster."""
    actions: Listed[str]
    """Actions of the kind; `*` for all."""
    is_deny: bool = False
    """Whether the rule denies the actions, whatever other rules allow."""


class RoleChange(msgspec.Struct, frozen=True, array_like=True):
    """A change of one role, which is created if it is missing."""

    name: str
    add_members: Listed[str] = []
    """Names of users; members already are no error."""
    remove_members: Listed[str] = []
    """Names of users; no members are no error."""
    is_removed: bool = False
    """Whether to remove the role, with its rules."""


class AlterAccessRequest(msgspec.Struct, frozen=True, array_like=True):
    """Change rules and roles; in force on all brokers when the reply comes.

    Rules for the same principal and pattern are merged: a rule to add gives more actions, one to
    remove takes actions. The request may be repeated.
    """

    add: Listed[AccessRule]
    remove: Listed[AccessRule] = []
    roles: Listed[RoleChange] = []


class AlterAccessReply(msgspec.Struct, frozen=True, array_like=True):
    """The rules after the change."""

    rules: list[AccessRule]
    """All rules of the principals and patterns in the request."""
    unconfirmed_nodes: list[int] = []
    """Brokers that did not confirm the change: their leases have run out, so they neither
    acknowledge nor deliver anything before they know it."""


class ListAccessRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for rules and roles; a principal without `access` on the cluster gets its own."""

    principal: str | None
    """Only rules of this principal, without those of its roles; `None` for all."""
    kind: str | None = None
    """Only rules of this kind."""
    name: str | None = None
    """Only rules that match this name."""


class RoleDescription(msgspec.Struct, frozen=True, array_like=True):
    """One role."""

    name: str
    members: list[str]
    """Names of users, sorted."""


class ListAccessReply(msgspec.Struct, frozen=True, array_like=True):
    """Rules, sorted by principal, kind and pattern, and roles by name."""

    rules: list[AccessRule]
    roles: list[RoleDescription]


class ExplainAccessRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask why a principal may do something, or may not."""

    principal: str | None
    """`None` asks about every principal with a rule or a role."""
    action: str
    kind: str
    name: str
    """Name of the resource, which need not exist; `cluster` for the cluster."""
    roles: Listed[str] = []
    """Further roles of the principal, such as those that its tokens carry."""


class AccessExplanation(msgspec.Struct, frozen=True, array_like=True):
    """A decision, and its reason."""

    principal: str
    is_allowed: bool
    rule: AccessRule | None
    """The rule that decided; `None` if no rule fits, which denies."""
    roles: list[str]
    """Roles of the principal."""
    remedy: str
    """The command that would allow it; empty for what is allowed."""
    notes: list[str]
    """Other ways to the same records."""


class ExplainAccessReply(msgspec.Struct, frozen=True, array_like=True):
    """One explanation; for every principal, those that may do it."""

    explanations: list[AccessExplanation]
    mode: str
    """`authorization` of the broker that answers: `off`, `report` or `enforce`."""
