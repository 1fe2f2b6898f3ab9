"""The commands `tidelog access`: grant, deny, revoke, list and explain access."""

from collections.abc import Sequence
from typing import Final

import click

from tidelog.cli.client import ask
from tidelog.cli.connected import ConnectedGroup
from tidelog.cli.options import examples, json_option
from tidelog.cli.output.tables import print_json, print_table
from tidelog.cli.usage import WrongUse
from tidelog.client.client import Client
from tidelog.wire.messages.access import AccessExplanation, AccessRule, AlterAccessReply
from tidelog.wire.security.access_rules import ACTIONS, CLUSTER, describe_rule

_DENIED: Final = 3
"""Exit status of `explain` for what is denied."""

_NAME = click.argument("name", required=False, metavar="[NAME|PREFIX*]")
_RESOURCE = click.argument("name", required=False, metavar="[NAME]")


@click.group(cls=ConnectedGroup)
def access() -> None:
    """Grant, revoke and explain access."""


@access.command(
    epilog=examples(
        "tidelog access grant user:alice read,write topic orders",
        "tidelog access grant role:workers receive,settle queue 'work-*'",
        "tidelog access grant user:carol describe cluster",
    )
)
@click.argument("principal")
@click.argument("actions")
@click.argument("kind")
@_NAME
@json_option
def grant(principal: str, actions: str, kind: str, *, name: str | None, as_json: bool) -> None:
    """Allow a principal actions.

    PRINCIPAL is user:NAME, role:NAME, anonymous, or * for every principal. ACTIONS are separated by
    commas; * stands for all. KIND is topic, queue, group, staged (names of transactions) or
    cluster. The rule is in force on all brokers when the command ends.
    """
    wanted = _named(kind, name)
    reply = ask(lambda client: client.access.grant(principal, actions, kind, name=wanted))
    _print_change(reply, as_json=as_json)


@access.command(epilog=examples("tidelog access deny '*' read topic orders-secret"))
@click.argument("principal")
@click.argument("actions")
@click.argument("kind")
@_NAME
@json_option
def deny(principal: str, actions: str, kind: str, *, name: str | None, as_json: bool) -> None:
    """Deny a principal actions, whatever other rules allow.

    The arguments are those of `tidelog access grant`.
    """
    wanted = _named(kind, name)
    reply = ask(lambda client: client.access.deny(principal, actions, kind, name=wanted))
    _print_change(reply, as_json=as_json)


@access.command(
    epilog=examples(
        "tidelog access revoke user:alice write topic orders",
        "tidelog access revoke --deny '*' read topic orders-secret",
    )
)
@click.argument("principal")
@click.argument("actions")
@click.argument("kind")
@_NAME
@click.option("--deny", "is_deny", is_flag=True, help="Take the actions from a rule that denies.")
@json_option
def revoke(
    principal: str, actions: str, kind: str, *, name: str | None, is_deny: bool, as_json: bool
) -> None:
    """Take actions from the rule for a name or prefix.

    When the command ends, no broker acknowledges or delivers anything by the revoked rule. Other
    rules may still allow it: see `tidelog access explain`.
    """
    wanted = _named(kind, name)

    async def call(client: Client) -> tuple[bool, AlterAccessReply]:
        rules = await client.access.list_rules(principal, kind)
        is_known = any((rule.pattern, rule.is_deny) == (wanted, is_deny) for rule in rules)
        return is_known, await client.access.revoke(
            principal, actions, kind, name=wanted, is_deny=is_deny
        )

    is_known, reply = ask(call)
    _print_change(reply, as_json=as_json)
    if not reply.rules and not as_json:
        rule = f"rule {'to deny' if is_deny else 'to allow'} {principal} {kind} {wanted}"
        click.echo(f"revoked: no {rule} is left" if is_known else f"there was no {rule}")


@access.command(
    "list", epilog=examples("tidelog access list", "tidelog access list user:alice --kind topic")
)
@click.argument("principal", required=False)
@click.option("--kind", metavar="KIND", help="List rules of this kind only.")
@click.option("--name", metavar="NAME", help="List rules that match this name only.")
@json_option
def list_all(principal: str | None, kind: str | None, name: str | None, *, as_json: bool) -> None:
    """List rules, without those of the roles of a principal."""
    found = ask(lambda client: client.access.list_rules(principal, kind, name))
    _print_rules(found, as_json=as_json)


@access.command(
    epilog=examples(
        "tidelog access explain user:alice write topic orders",
        "tidelog access explain user:alice describe cluster",
    )
)
@click.argument("principal")
@click.argument("action")
@click.argument("kind")
@_RESOURCE
@click.option("--role", "roles", multiple=True, help="Add a role, such as one of a token.")
@json_option
def explain(
    principal: str,
    action: str,
    kind: str,
    *,
    name: str | None,
    roles: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show why a principal may do something, or may not.

    Names the rule that decided, or the command that would allow it. The exit status is 0 for what
    is allowed, and 3 for what is denied.
    """
    wanted = _named(kind, name)
    found = ask(
        lambda client: client.access.explain(principal, action, kind, name=wanted, roles=roles)
    )
    if as_json:
        print_json(_as_json(found))
    else:
        _print_explanation(found, " ".join(filter(None, (action, kind, name))))
    if not found.is_allowed:
        click.get_current_context().exit(_DENIED)


@access.command("who", epilog=examples("tidelog access who write topic orders"))
@click.argument("action")
@click.argument("kind")
@_RESOURCE
@json_option
def holders(action: str, kind: str, name: str | None, *, as_json: bool) -> None:
    """List the principals that may do something."""
    wanted = _named(kind, name)

    async def call(client: Client) -> list[AccessExplanation]:
        return await client.access.holders(action, kind, name=wanted)

    found = ask(call)
    if as_json:
        print_json([_as_json(each) for each in found])
    elif not found:
        click.echo("no principal but the members of role:admin", err=True)
    else:
        rows = [(each.principal, _text(each.rule)) for each in found]
        print_table(["PRINCIPAL", "RULE"], rows)


def _named(kind: str, name: str | None) -> str:
    """Return the name of the resource.

    Raises:
        WrongUse: It is missing, or in the place of the kind.
    """
    if kind not in ACTIONS:
        raise WrongUse(f"{kind!r} is no kind of resource; use one of {', '.join(ACTIONS)}")
    if name is None and kind != CLUSTER:
        raise WrongUse(f"{kind} needs a name: give NAME, or PREFIX* in quotes for a rule")
    return CLUSTER if name is None else name


def _text(rule: AccessRule | None) -> str:
    if rule is None:
        return ""
    return describe_rule(
        rule.principal, rule.kind, rule.pattern, actions=rule.actions, is_deny=rule.is_deny
    )


def _print_explanation(found: AccessExplanation, resource: str) -> None:
    if found.is_allowed:
        click.echo(f"{found.principal} may {resource}: {_text(found.rule)}")
    else:
        reason = "no rule allows it" if found.rule is None else _text(found.rule)
        click.echo(f"{found.principal} may not {resource}: {reason}")
        click.echo(f"to allow it: {found.remedy}")
    if found.roles:
        click.echo(f"roles: {', '.join(found.roles)}")
    for note in found.notes:
        click.echo(f"note: {note}")


def _print_change(reply: AlterAccessReply, *, as_json: bool) -> None:
    if reply.unconfirmed_nodes:
        names = ", ".join(map(str, reply.unconfirmed_nodes))
        click.echo(
            f"brokers that did not confirm, and act no more until they know it: {names}", err=True
        )
    if as_json:
        print_json([_rule_as_json(each) for each in reply.rules])
    else:
        for each in reply.rules:
            click.echo(_text(each))


def _print_rules(rules: Sequence[AccessRule], *, as_json: bool) -> None:
    if as_json:
        print_json([_rule_as_json(each) for each in rules])
    elif not rules:
        click.echo(
            "there are no such rules; `tidelog access grant` adds one, and members of role:admin"
            " need none",
            err=True,
        )
    else:
        print_table(
            ["PRINCIPAL", "KIND", "NAME", "ACTIONS", "RULE"],
            [
                (
                    each.principal,
                    each.kind,
                    each.pattern,
                    ",".join(each.actions),
                    "deny" if each.is_deny else "allow",
                )
                for each in rules
            ],
        )


def _rule_as_json(rule: AccessRule) -> dict[str, object]:
    return {
        "principal": rule.principal,
        "kind": rule.kind,
        "name": rule.pattern,
        "actions": rule.actions,
        "is_deny": rule.is_deny,
    }


def _as_json(found: AccessExplanation) -> dict[str, object]:
    return {
        "principal": found.principal,
        "is_allowed": found.is_allowed,
        "rule": None if found.rule is None else _rule_as_json(found.rule),
        "roles": found.roles,
        "remedy": found.remedy or None,
        "notes": found.notes,
    }
