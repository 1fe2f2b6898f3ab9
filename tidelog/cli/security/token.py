"""The commands `tidelog token`: create, list and revoke tokens of users."""

from collections.abc import Sequence

import click

from tidelog.cli.client import ask
from tidelog.cli.connected import ConnectedGroup
from tidelog.cli.errors import CommandError
from tidelog.cli.options import Seconds, examples, json_option
from tidelog.cli.output.tables import print_json, print_table
from tidelog.cli.output.times import moment_text
from tidelog.client.client import Client
from tidelog.wire.env.real.real_env import RealClock
from tidelog.wire.messages.users import TokenDescription
from tidelog.wire.security.token import parse_token


@click.group(cls=ConnectedGroup)
def token() -> None:
    """Create, list and revoke tokens of users."""


@token.command(
    short_help="Create a token of a user.",
    epilog=examples(
        "tidelog token create ci --expires-in 90d --description 'build server'",
        "tidelog token create ci > ci.token",
    ),
)
@click.argument("user")
@click.option(
    "--expires-in",
    type=Seconds(least=1),
    metavar="DURATION",
    help="End after this time; by default it has no end.",
)
@click.option("--description", default="", metavar="TEXT", help="Say what the token is for.")
@json_option
def create(user: str, expires_in: float | None, description: str, *, as_json: bool) -> None:
    """Create a token of a user, and print it. It is shown once; brokers keep its hash alone."""
    text = ask(
        lambda client: client.security.create_token(
            user, expires_in=expires_in, description=description
        )
    )
    parts = parse_token(text)
    assert parts is not None, "the client creates tokens"
    if as_json:
        print_json({"token_id": parts.token_id, "user": user, "token": text})
        return
    click.echo(text)
    click.echo(
        f"keep it secret: it is shown once; `tidelog token revoke {parts.token_id}` ends it",
        err=True,
    )


@token.command("list", epilog=examples("tidelog token list", "tidelog token list ci --json"))
@click.argument("user", required=False)
@json_option
def list_all(user: str | None, as_json: bool) -> None:
    """List the tokens of all users or of one, without their secrets."""
    found = ask(lambda client: client.security.list_tokens(user))
    if as_json:
        print_json([_as_json(each) for each in found])
    elif not found:
        click.echo("there are no tokens; `tidelog token create USER` creates one", err=True)
    else:
        _print(found, now_ms=RealClock().now_ms())


@token.command(
    short_help="Revoke tokens.",
    epilog=examples("tidelog token revoke 0123456789ab"),
)
@click.argument("token_ids", nargs=-1, required=True, metavar="TOKEN_ID...")
def revoke(token_ids: tuple[str, ...]) -> None:
    """Revoke tokens by their ids; the connections of these tokens end within a second."""

    async def call(client: Client) -> list[str]:
        return [each for each in token_ids if not await client.security.revoke_token(each)]

    unknown = ask(call)
    if unknown:
        raise CommandError(
            f"there is no token {', '.join(map(_public, unknown))}; `tidelog token list` lists them"
        )
    click.echo("revoked", err=True)


def _public(text: str) -> str:
    """Return the id in a token, which may be given as a whole."""
    parts = parse_token(text)
    return text if parts is None else parts.token_id


def _as_json(found: TokenDescription) -> dict[str, object]:
    return {
        "token_id": found.token_id,
        "user": found.user,
        "created_at_ms": found.created_at_ms,
        "expires_at_ms": found.expires_at_ms,
        "description": found.description,
    }


def _print(found: Sequence[TokenDescription], *, now_ms: int) -> None:
    rows = [
        (
            each.token_id,
            each.user,
            moment_text(each.created_at_ms),
            _end_text(each.expires_at_ms, now_ms),
            each.description,
        )
        for each in found
    ]
    print_table(("TOKEN ID", "USER", "CREATED", "ENDS", "DESCRIPTION"), rows)


def _end_text(expires_at_ms: int | None, now_ms: int) -> str | None:
    if expires_at_ms is None:
        return None
    text = moment_text(expires_at_ms)
    return f"{text} (over)" if expires_at_ms <= now_ms else text
