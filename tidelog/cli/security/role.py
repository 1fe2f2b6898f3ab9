"""The commands `tidelog role`: members of roles."""

from collections.abc import Sequence
from typing import Final

import click

from tidelog.cli.client import ask, confirm
from tidelog.cli.connected import ConnectedGroup
from tidelog.cli.options import examples, json_option
from tidelog.cli.output.tables import print_json, print_table
from tidelog.wire.security.access_rules import ADMIN_ROLE

_LOCK_OUT: Final = (
    "no user is an administrator then, and the way back needs a restart (`tidelog admin recover`)"
)


@click.group(cls=ConnectedGroup)
def role() -> None:
    """Create, alter, list and delete roles."""


_USERS = click.argument("users", nargs=-1, required=True, metavar="USER...")
_YES = click.option("--yes", "is_sure", is_flag=True, help="Do not ask, even for the role admin.")


@role.command(epilog=examples("tidelog role add workers alice bob", "tidelog role add admin carol"))
@click.argument("name")
@_USERS
def add(name: str, users: tuple[str, ...]) -> None:
    """Add users to a role, which is created if it is missing.

    Members of the role admin may do everything.
    """
    ask(lambda client: client.access.alter_role(name, add=users))
    click.echo(f"added {', '.join(users)} to role {name}")


@role.command(epilog=examples("tidelog role remove workers bob"))
@click.argument("name")
@_USERS
@_YES
def remove(name: str, users: tuple[str, ...], *, is_sure: bool) -> None:
    """Remove users from a role."""
    if name == ADMIN_ROLE and not is_sure and _is_left_empty(users):
        confirm(f"remove {', '.join(users)} from the role admin? {_LOCK_OUT}")
    ask(lambda client: client.access.alter_role(name, remove=users))
    click.echo(f"removed {', '.join(users)} from role {name}")


@role.command(epilog=examples("tidelog role create workers"))
@click.argument("name")
def create(name: str) -> None:
    """Create a role without members."""
    ask(lambda client: client.access.alter_role(name))
    click.echo(f"created role {name}")


@role.command(epilog=examples("tidelog role delete workers"))
@click.argument("name")
def delete(name: str) -> None:
    """Delete a role with its rules."""
    ask(lambda client: client.access.remove_role(name))
    click.echo(f"deleted role {name}")


@role.command("list", epilog=examples("tidelog role list"))
@json_option
def list_all(as_json: bool) -> None:
    """List roles with their members."""
    found = ask(lambda client: client.access.list_roles())
    if as_json:
        print_json([{"name": each.name, "members": each.members} for each in found])
    elif not found:
        click.echo("there are no roles; `tidelog role add` creates one", err=True)
    else:
        print_table(["ROLE", "MEMBERS"], [(each.name, ", ".join(each.members)) for each in found])


def _is_left_empty(users: Sequence[str]) -> bool:
    """Return whether the role admin has members, and none but `users`."""
    roles = ask(lambda client: client.access.list_roles())
    administrators = {
        member for each in roles if each.name == ADMIN_ROLE for member in each.members
    }
    return bool(administrators) and administrators <= set(users)
