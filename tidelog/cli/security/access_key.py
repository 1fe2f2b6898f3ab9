"""The commands `tidelog access-key`: access keys of users, for programs of AWS SDKs."""

from collections.abc import Sequence

import click

from tidelog.cli.client import ask
from tidelog.cli.connected import ConnectedGroup
from tidelog.cli.errors import CommandError
from tidelog.cli.options import examples, json_option
from tidelog.cli.output.tables import print_json, print_table
from tidelog.cli.output.times import moment_text
from tidelog.client.client import Client
from tidelog.wire.messages.access_keys import AccessKeyDescription


@click.group("access-key", cls=ConnectedGroup)
def access_key() -> None:
    """Create, list, disable and remove access keys of users, for SDKs of AWS."""


@access_key.command(
    short_help="Create an access key of a user.",
    epilog=examples(
        "tidelog access-key create user:alice",
        "tidelog access-key create user:alice --account 111122223333 > alice.env",
    ),
)
@click.argument("user")
@click.option(
    "--account",
    default="",
    metavar="DIGITS",
    help="Account of twelve digits, whose queues the key uses; by default that of the SQS front.",
)
@click.option("--description", default="", metavar="TEXT", help="Say what the key is for.")
@json_option
def create(user: str, account: str, description: str, *, as_json: bool) -> None:
    """Create an access key of a user, and print it as variables of the environment.

    The secret is shown once: brokers derive it from the secret of their cluster.
    """
    name = user.removeprefix("user:")
    found = ask(
        lambda client: client.security.create_access_key(
            name, account=account, description=description
        )
    )
    if as_json:
        print_json(
            {"access_key_id": found.access_key_id, "user": name, "secret_access_key": found.secret}
        )
        return
    click.echo(f"AWS_ACCESS_KEY_ID={found.access_key_id}")
    click.echo(f"AWS_SECRET_ACCESS_KEY={found.secret}")
    click.echo(
        f"keep it secret: it is shown once; `tidelog access-key remove {found.access_key_id}`"
        " ends it",
        err=True,
    )


@access_key.command(
    "list", epilog=examples("tidelog access-key list", "tidelog access-key list user:alice --json")
)
@click.argument("user", required=False)
@json_option
def list_all(user: str | None, *, as_json: bool) -> None:
    """List the access keys of all users or of one, without their secrets."""
    name = None if user is None else user.removeprefix("user:")
    found = ask(lambda client: client.security.list_access_keys(name))
    if as_json:
        print_json([_as_json(each) for each in found])
    elif not found:
        click.echo("there are no access keys; `tidelog access-key create` creates one", err=True)
    else:
        _print(found)


@access_key.command(
    short_help="Disable access keys.", epilog=examples("tidelog access-key disable TDLA...")
)
@click.argument("access_key_ids", nargs=-1, required=True, metavar="KEY_ID...")
def disable(access_key_ids: tuple[str, ...]) -> None:
    """Disable access keys, until they are enabled; requests that wait for their users end."""
    _enable(access_key_ids, is_enabled=False)


@access_key.command(
    short_help="Enable access keys.", epilog=examples("tidelog access-key enable TDLA...")
)
@click.argument("access_key_ids", nargs=-1, required=True, metavar="KEY_ID...")
def enable(access_key_ids: tuple[str, ...]) -> None:
    """Enable access keys that were disabled."""
    _enable(access_key_ids, is_enabled=True)


@access_key.command(
    short_help="Remove access keys.", epilog=examples("tidelog access-key remove TDLA...")
)
@click.argument("access_key_ids", nargs=-1, required=True, metavar="KEY_ID...")
def remove(access_key_ids: tuple[str, ...]) -> None:
    """Remove access keys for ever; requests that wait for their users end."""

    async def call(client: Client) -> list[str]:
        return [
            each for each in access_key_ids if not await client.security.remove_access_key(each)
        ]

    _require_known(ask(call))
    click.echo("removed", err=True)


def _enable(access_key_ids: Sequence[str], *, is_enabled: bool) -> None:
    async def call(client: Client) -> list[str]:
        security = client.security
        return [
            each
            for each in access_key_ids
            if not await security.enable_access_key(each, is_enabled=is_enabled)
        ]

    _require_known(ask(call))
    click.echo("enabled" if is_enabled else "disabled", err=True)


def _require_known(unknown: Sequence[str]) -> None:
    if unknown:
        raise CommandError(
            f"there is no access key {', '.join(unknown)}; `tidelog access-key list` lists them"
        )


def _as_json(found: AccessKeyDescription) -> dict[str, object]:
    return {
        "access_key_id": found.access_key_id,
        "user": found.user,
        "account": found.account or None,
        "created_at_ms": found.created_at_ms,
        "is_enabled": found.is_enabled,
        "is_usable": found.is_usable,
        "description": found.description,
    }


def _print(found: Sequence[AccessKeyDescription]) -> None:
    rows = [
        (
            each.access_key_id,
            each.user,
            each.account or None,
            _state(each),
            moment_text(each.created_at_ms),
            each.description,
        )
        for each in found
    ]
    print_table(("ACCESS KEY ID", "USER", "ACCOUNT", "STATE", "CREATED", "DESCRIPTION"), rows)


def _state(found: AccessKeyDescription) -> str:
    if not found.is_enabled:
        return "disabled"
    return "enabled" if found.is_usable else "unusable: the cluster secret has changed"
