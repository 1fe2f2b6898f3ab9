"""Kinds of resources, their actions, and the form of a rule of access (Kafka: AclBinding).

Pure: no clock, no I/O. Clients, the command line and brokers share this table.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.wire.errors import InvalidRequestError
from tidelog.wire.security.audit_topic import AUDIT_TOPIC
from tidelog.wire.security.principal import ANONYMOUS, PrincipalKind, check_name

ALL: Final = "*"
"""Stands for every principal, every action, or every name."""
CLUSTER: Final = "cluster"
"""The kind of the cluster itself, and the only name of that kind."""
ADMIN_ROLE: Final = "admin"
"""The role whose members may do everything; no rule denies them anything."""
NAME_CHARS_MAX: Final = 249

ACTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("alter", "create", "delete", "describe", "read", "write"),
    "queue": (
        *("alter", "create", "delete", "describe", "peek", "purge"),
        *("receive", "redrive", "seek", "send", "settle"),
    ),
    "group": ("alter", "commit", "delete", "describe", "join", "reset"),
    "staged": ("abort", "begin", "commit", "describe"),
    CLUSTER: (
        *("access", "alter", "audit", "describe", "impersonate", "keys", "move"),
        *("quotas", "unregister", "users"),
    ),
}
"""The actions of each kind of resource, sorted."""

DESCRIBE: Final = "describe"
"""The action that every allowed action on the same name includes."""

_STORED_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
_FREE_NAMES: Final = ("group", "staged")
"""Kinds whose names may have any characters."""


class Resource(NamedTuple):
    """An action on something with a name."""

    action: str
    kind: str
    name: str

    def __str__(self) -> str:
        """Return the resource as the command line takes it, such as `write topic orders`."""
        return f"{self.action} {self.kind}" if self.kind == CLUSTER else " ".join(self)


def needed(resource: Resource) -> Resource:
    """Return the action that rules have to allow: those of the audit topic are of the cluster.

    So no rule for topics shows the audit, such as one for `*`; and a reader of the audit cannot
    shorten it.
    """
    if resource.kind != "topic" or resource.name != AUDIT_TOPIC:
        return resource
    return cluster_action("audit" if resource.action in ("read", DESCRIBE) else "alter")


def cluster_action(action: str) -> Resource:
    """Return an action on the cluster itself."""
    return Resource(action, CLUSTER, CLUSTER)


def describe_rule(
    principal: str, kind: str, pattern: str, *, actions: Sequence[str], is_deny: bool
) -> str:
    """Return a rule as text, such as `allow user:alice read,write topic orders`."""
    verb = "deny" if is_deny else "allow"
    name = "" if kind == CLUSTER else f" {pattern}"
    return f"{verb} {principal} {','.join(actions)} {kind}{name}"


def check_action(action: str, kind: str) -> None:
    """Check an action of a kind of resource.

    Raises:
        InvalidRequestError: The kind does not exist, or has no such action.
    """
    actions = ACTIONS.get(kind)
    if actions is None:
        raise InvalidRequestError(
            f"{kind!r} is no kind of resource; use one of {', '.join(ACTIONS)}"
        )
    if action not in actions:
        raise InvalidRequestError(
            f"{kind} has no action {action!r}; use some of {', '.join(actions)}, or * for all"
        )


def checked_actions(actions: Sequence[str], kind: str) -> tuple[str, ...]:
    """Return the actions of a rule, sorted and each once; `*` alone stands for all.

    Raises:
        InvalidRequestError: An action does not belong to the kind, or there is none.
    """
    if not actions:
        raise InvalidRequestError(f"the rule names no action; use some of {_actions_of(kind)}")
    for action in actions:
        if action != ALL or kind not in ACTIONS:
            check_action(action, kind)
    return (ALL,) if ALL in actions else tuple(sorted(set(actions)))


def check_pattern(pattern: str, kind: str) -> None:
    """Check a name, or the start of names with a `*` at its end.

    Raises:
        InvalidRequestError: The pattern can match no name of the kind, or not what it seems to.
    """
    stem = pattern.removesuffix(ALL)
    if kind == CLUSTER:
        if pattern not in (CLUSTER, ALL):
            raise InvalidRequestError(
                f"the cluster has no name {pattern!r}; leave the name out: `describe cluster`"
            )
        return
    if not pattern or len(pattern) > NAME_CHARS_MAX:
        raise InvalidRequestError(f"a name or PREFIX* has 1 to {NAME_CHARS_MAX} characters")
    if ALL in stem:
        raise InvalidRequestError(
            f"pattern {pattern!r} has a `*` that is not at its end, and would match nothing; write"
            f" a whole name, or one prefix such as {_prefix_in(stem)!r}"
        )
    if stem and kind not in _FREE_NAMES and not _STORED_NAME.fullmatch(stem):
        raise InvalidRequestError(
            f"pattern {pattern!r} matches no {kind}: names have letters, digits and ._- only;"
            " write a whole name, or PREFIX*"
        )


def check_subject(principal: str) -> None:
    """Check the principal of a rule: `user:NAME`, `role:NAME`, `anonymous` or `*`.

    Raises:
        InvalidRequestError: It is none of these.
    """
    kind, _, name = principal.partition(":")
    if principal in (ALL, str(ANONYMOUS)):
        return
    if kind == PrincipalKind.NODE:
        raise InvalidRequestError(
            f"{principal!r} needs no rule: a node of the cluster may do everything, and its own"
            " APIs cannot be granted"
        )
    if kind not in (PrincipalKind.USER, "role"):
        raise InvalidRequestError(
            f"{principal!r} is no principal of a rule; write user:NAME, role:NAME, anonymous, or *"
            " for all"
        )
    check_name(name, of=kind)
    if principal == f"role:{ADMIN_ROLE}":
        raise InvalidRequestError(
            f"role:{ADMIN_ROLE} needs no rule: its members may do everything; change its members"
        )


def _actions_of(kind: str) -> str:
    return ", ".join((*ACTIONS.get(kind, ()), ALL))


def _prefix_in(stem: str) -> str:
    return (stem[: stem.index(ALL)] or "orders-") + ALL
