"""The commands `tidelog user`: create, list and remove users, and change their passwords."""

from collections.abc import Sequence

import click

from tidelog.cli.client import ask, confirm
from tidelog.cli.connected import ConnectedGroup
from tidelog.cli.errors import CommandError
from tidelog.cli.options import examples, json_option
from tidelog.cli.output.tables import print_json, print_table
from tidelog.cli.security.passwords import password_options, read_password
from tidelog.wire.messages.users import UserDescription


@click.group(cls=ConnectedGroup)
def user() -> None:
    """Create, list and remove users, and change passwords."""


@user.command(
    short_help="Create a user.",
    epilog=examples(
        "tidelog user create alice",
        "tidelog user create alice --password-file alice.password",
        "tidelog user create ci --no-password",
    ),
)
@click.argument("name")
@password_options
def create(name: str, password_file: str | None, no_password: bool) -> None:
    """Create a user. Without options, the command asks for the password.

    The password is hashed here: no broker sees it. A user without a password authenticates by
    tokens or certificates.
    """
    password = read_password(password_file, no_password=no_password)
    ask(lambda client: client.security.create_user(name, password))
    click.echo(f"user {name} created", err=True)
    if password is None:
        click.echo(f"`tidelog token create {name}` creates a token", err=True)


@user.command("list", epilog=examples("tidelog user list", "tidelog user list --json"))
@json_option
def list_all(as_json: bool) -> None:
    """List users."""
    found = ask(lambda client: client.security.list_users())
    if as_json:
        print_json([_as_json(each) for each in found])
    elif not found:
        click.echo("there are no users; `tidelog user create NAME` creates one", err=True)
    else:
        _print(found)


@user.command(
    short_help="Change the password of a user.",
    epilog=examples(
        "tidelog user password alice",
        "tidelog user password alice --password-file alice.password",
    ),
)
@click.argument("name")
@password_options
def password(name: str, password_file: str | None, no_password: bool) -> None:
    """Change the password of a user; the connections of the old one end within a second.

    Tokens of the user stay valid: `tidelog token revoke` ends them.
    """
    text = read_password(password_file, no_password=no_password)
    ask(lambda client: client.security.set_password(name, text))
    click.echo(f"password of user {name} {'removed' if text is None else 'changed'}", err=True)


@user.command(
    short_help="Remove a user with all that belongs to it.",
    epilog=examples("tidelog user remove alice"),
)
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def remove(name: str, yes: bool) -> None:
    """Remove a user with its tokens, roles, grants and quotas; its connections end."""
    if not yes:
        confirm(f"Remove user {name} with its tokens, roles, grants and quotas?")
    if not ask(lambda client: client.security.remove_user(name)):
        raise CommandError(f"there is no user {name}; `tidelog user list` lists the users")
    click.echo(f"user {name} removed", err=True)


def _as_json(found: UserDescription) -> dict[str, object]:
    return {
        "name": found.name,
        "has_password": found.has_password,
        "token_count": found.token_count,
    }


def _print(found: Sequence[UserDescription]) -> None:
    rows = [(each.name, "yes" if each.has_password else "no", each.token_count) for each in found]
    print_table(("USER", "PASSWORD", "TOKENS"), rows, right=("TOKENS",))
