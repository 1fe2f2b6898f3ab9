"""Handlers of ALTER_ACCESS, LIST_ACCESS and EXPLAIN_ACCESS: rules and roles."""

from collections.abc import Iterable
from typing import Final, final

import trio

from tidelog.broker.handlers.feature_level import require_security
from tidelog.broker.security.barrier import wait_in_force
from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.node import ClusterNode
from tidelog.coordinator.raft.membership import check_cluster
from tidelog.coordinator.security.access import AccessTable
from tidelog.coordinator.security.access_commands import checked_rule
from tidelog.coordinator.security.commands import (
    AccessCommand,
    ChangeGrants,
    RemoveRole,
    SetRole,
)
from tidelog.coordinator.security.records import Grant
from tidelog.coordinator.security.state import SecurityState
from tidelog.wire.errors import RequestTimedOutError
from tidelog.wire.messages.access import (
    AccessExplanation,
    AccessRule,
    AlterAccessReply,
    AlterAccessRequest,
    ExplainAccessReply,
    ExplainAccessRequest,
    ListAccessReply,
    ListAccessRequest,
    RoleChange,
    RoleDescription,
)
from tidelog.wire.messages.cluster import AwaitMetadataReply, AwaitMetadataRequest
from tidelog.wire.security.access_rules import ALL, CLUSTER, Resource, check_action, needed
from tidelog.wire.security.principal import ANONYMOUS, parse_principal

_DECIDE_TIMEOUT_S: Final = 10.0
_AT_ONCE: Final = 500
"""Principals that are decided about before other tasks run."""


@final
class AccessHandler:
    """Administration of rules and roles.

    On cancellation, a change may be carried out or not.
    """

    def __init__(self, cluster: ClusterNode, *, mode: str) -> None:
        """Serve requests at one node, whose `authorization` is `mode`."""
        self._cluster = cluster
        self._mode = mode

    async def alter(self, request: AlterAccessRequest) -> AlterAccessReply:
        """Change rules and roles; return when they are in force on all brokers.

        Raises:
            InvalidRequestError: A rule or a name is not legal, or the feature level is too low.
            BrokerNotReadyError: The cluster is new, and has no feature level yet.
            RequestTimedOutError: The voters have no majority.
        """
        added = tuple(checked_rule(_grant(each)) for each in request.add)
        removed = tuple(checked_rule(_grant(each)) for each in request.remove)
        commands: list[AccessCommand] = [_role_command(each) for each in request.roles]
        if added or removed:
            commands.append(ChangeGrants(added, removed))
        await require_security(self._cluster)
        for command in commands:
            await self._cluster.command_client.submit(command, timeout_s=_DECIDE_TIMEOUT_S)
        unconfirmed = await wait_in_force(self._cluster)
        touched = {(each.principal, each.kind, each.pattern) for each in (*added, *removed)}
        rules = [
            _rule(each)
            for each in sorted(self._security.grants)
            if (each.principal, each.kind, each.pattern) in touched
        ]
        return AlterAccessReply(rules, unconfirmed)

    async def list_all(self, request: ListAccessRequest) -> ListAccessReply:
        """Return rules and roles."""
        rules = [
            _rule(each)
            for each in sorted(self._security.grants)
            if request.principal in (None, each.principal)
            and request.kind in (None, each.kind)
            and (request.name is None or _matches(each.pattern, request.name))
        ]
        roles = [
            RoleDescription(each.name, list(each.members))
            for _, each in sorted(self._security.roles.items())
            if request.principal in (None, f"role:{each.name}")
            or (request.principal or "").removeprefix("user:") in each.members
        ]
        return ListAccessReply(rules, roles)

    async def explain(self, request: ExplainAccessRequest) -> ExplainAccessReply:
        """Return the decision about one principal, or those that allow any.

        Raises:
            InvalidRequestError: The action, the kind or the principal is not legal.
        """
        check_action(request.action, request.kind)
        name = CLUSTER if request.kind == CLUSTER else request.name
        resource = needed(Resource(request.action, request.kind, name))
        if request.principal is not None:
            if request.principal != ALL:
                parse_principal(request.principal)
            found = [self._explain(request.principal, request.roles, resource)]
            return ExplainAccessReply(found, self._mode)
        found = list[AccessExplanation]()
        for count, principal in enumerate(_known_principals(self._security)):
            explanation = self._explain(principal, (), resource)
            if explanation.is_allowed:
                found.append(explanation)
            if count % _AT_ONCE == _AT_ONCE - 1:
                await trio.lowlevel.checkpoint()
        return ExplainAccessReply(found, self._mode)

    def _explain(
        self, principal: str, more_roles: Iterable[str], resource: Resource
    ) -> AccessExplanation:
        table = self._security.access
        user = principal.removeprefix("user:") if principal.startswith("user:") else ""
        roles = sorted({*more_roles, *table.roles_of(user)})
        action, kind, name = resource
        decision = table.decide(principal, roles, action=action, kind=kind, name=name)
        rule = None if decision.rule is None else _rule(decision.rule)
        remedy = "" if decision.allowed else _remedy(principal, resource, decision.rule)
        notes = self._notes(table, principal, roles, resource=resource)
        if self._mode != "enforce":
            notes.append(
                f"the broker has authorization = {self._mode}, and serves what rules do not allow"
            )
        return AccessExplanation(principal, decision.allowed, rule, roles, remedy, notes)

    def _notes(
        self, table: AccessTable, principal: str, roles: list[str], *, resource: Resource
    ) -> list[str]:
        """Return the ways to records of a topic or queue by another name."""
        catalog = self._cluster.metadata.state.catalog
        action, kind, name = resource

        def may(action: str, kind: str, name: str) -> bool:
            return table.decide(principal, roles, action=action, kind=kind, name=name).allowed

        def of_queue(journal: Topic, others: Iterable[str], verb: str) -> list[str]:
            queue = journal.queue_name
            return [
                f"{principal} may {other} queue {queue}, and so {verb} records of topic {name}"
                for other in others
                if may(other, "queue", queue)
            ]

        if kind == "topic" and catalog.has_topic(name):
            journals = catalog.journals_of(catalog.topic(name).topic_id)
            ways = {"read": ("receive", "peek"), "write": ("send",)}.get(action, ())
            verb = "append" if action == "write" else "read"
            return [note for each in journals for note in of_queue(each, ways, verb)]
        if kind == "queue" and catalog.has_queue(name):
            source = catalog.topic_by_id(catalog.journal(name).source_id)
            topic = "" if source is None else source.name
            other = {"receive": "read", "peek": "read", "send": "write"}.get(action)
            if other is not None and may(other, "topic", topic):
                records = f"the records of queue {name}"
                return [f"{principal} may {other} topic {topic}, and so {other} {records}"]
        return []

    @property
    def _security(self) -> SecurityState:
        return self._cluster.metadata.state.security


@final
class AwaitMetadataHandler:
    """Answers when this node has applied an entry of the metadata."""

    def __init__(self, cluster: ClusterNode) -> None:
        """Answer for one node."""
        self._cluster = cluster

    async def wait(self, request: AwaitMetadataRequest) -> AwaitMetadataReply:
        """Wait until the entry is applied; the asking node ends the wait with its connection."""
        check_cluster(
            request.cluster_id, self._cluster.raft.identity, self._cluster.raft.cluster_id
        )
        with trio.move_on_after(_DECIDE_TIMEOUT_S):
            await self._cluster.metadata.wait_applied(request.index)
            return AwaitMetadataReply(self._cluster.metadata.applied_index)
        raise RequestTimedOutError(
            f"entry {request.index} of the metadata is not applied here within"
            f" {_DECIDE_TIMEOUT_S:g} s; ask again"
        )


def _grant(rule: AccessRule) -> Grant:
    return Grant(rule.principal, rule.kind, rule.pattern, tuple(rule.actions), rule.is_deny)


def _rule(grant: Grant) -> AccessRule:
    return AccessRule(
        grant.principal, grant.kind, grant.pattern, list(grant.actions), grant.is_deny
    )


def _role_command(change: RoleChange) -> AccessCommand:
    if change.is_removed:
        return RemoveRole(change.name)
    return SetRole(change.name, tuple(change.add_members), tuple(change.remove_members))


def _matches(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith(ALL) else name == pattern


def _known_principals(security: SecurityState) -> list[str]:
    """Return all principals with a rule or a role, all users, and `*` for the others."""
    users = {f"user:{name}" for name in security.users}
    members = {f"user:{name}" for role in security.roles.values() for name in role.members}
    named = {each.principal for each in security.grants if each.principal.startswith("user:")}
    return [ALL, str(ANONYMOUS), *sorted(users | members | named)]


def _remedy(principal: str, resource: Resource, rule: Grant | None) -> str:
    """Return the command that would allow something."""
    if rule is None:
        return f"tidelog access grant {principal} {resource}"
    target = rule.kind if rule.kind == CLUSTER else f"{rule.kind} '{rule.pattern}'"
    subject = f"'{ALL}'" if rule.principal == ALL else rule.principal
    return f"tidelog access revoke --deny {subject} {resource.action} {target}"
