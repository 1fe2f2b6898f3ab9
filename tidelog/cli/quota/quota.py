"""The commands `tidelog quota`: set, list and remove quotas of principals."""

import click
from msgspec.structs import asdict

from tidelog.cli.client import ask
from tidelog.cli.connected import ConnectedGroup
from tidelog.cli.options import NameAndValue, examples, json_option
from tidelog.cli.output.tables import print_json, print_table, size_text
from tidelog.wire.config.quotas import (
    ABOUT,
    BUSY,
    OVER_QUOTA,
    format_quota,
    parse_quota,
)
from tidelog.wire.errors import InvalidConfigError
from tidelog.wire.messages.quotas import QuotaDescription

_COLUMNS = ("PRINCIPAL", "QUOTA", "LIMIT", "USED", "THROTTLED")


@click.group(cls=ConnectedGroup)
def quota() -> None:
    """Set, list and remove quotas of principals."""


@quota.command(
    "set",
    epilog=examples(
        "tidelog quota set user:billing produce_bytes_per_s=10MiB requests_per_s=500",
        "tidelog quota set default connections_max=100 partitions_max=50",
        "tidelog quota set user:billing over_quota=error",
    ),
)
@click.argument("principal")
@click.argument("values", type=NameAndValue(), metavar="NAME=VALUE...", nargs=-1, required=True)
@json_option
def set_quota(principal: str, values: tuple[tuple[str, str], ...], *, as_json: bool) -> None:
    """Set quotas of a principal.

    PRINCIPAL is user:NAME, anonymous, or default for each principal without quotas of its own.
    Rates and storage take sizes such as 10MiB. Quotas that are not named stay.
    """
    for name, text in values:
        _check(name, text)
    found = ask(lambda client: client.security.alter_quotas(principal, set=dict(values)))
    _print_values(principal, found, as_json=as_json)


@quota.command(
    "list",
    epilog=examples("tidelog quota list", "tidelog quota list user:billing --json"),
)
@click.argument("principals", metavar="[PRINCIPAL]...", nargs=-1)
@json_option
def list_quotas(principals: tuple[str, ...], *, as_json: bool) -> None:
    """List quotas and their use now.

    Without PRINCIPAL, those that have quotas or use some; each principal may list itself. Rates are
    per second, summed over the brokers. THROTTLED is the part of the last second in which
    a broker read no further requests.
    """
    found = ask(lambda client: client.security.list_quotas(principals or None))
    if as_json:
        print_json([asdict(each) for each in found])
        return
    print_table(
        list(_COLUMNS), [row for each in found for row in _rows(each)], right=["LIMIT", "USED"]
    )


@quota.command(
    epilog=examples(
        "tidelog quota remove user:billing requests_per_s",
        "tidelog quota remove user:billing --all",
    )
)
@click.argument("principal")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Remove all quotas of the principal.")
@json_option
def remove(principal: str, names: tuple[str, ...], *, is_all: bool, as_json: bool) -> None:
    """Remove quotas of a principal.

    A principal without quotas of its own has those of default.
    """
    if bool(names) == is_all:
        raise click.UsageError("give names of quotas, or --all for all of them")
    removed = ("*",) if is_all else names
    found = ask(lambda client: client.security.alter_quotas(principal, remove=removed))
    _print_values(principal, found, as_json=as_json)


def _check(name: str, text: str) -> None:
    try:
        parse_quota(name, text)
    except InvalidConfigError as error:
        raise click.UsageError(str(error)) from error


def _print_values(principal: str, values: dict[str, int], *, as_json: bool) -> None:
    if as_json:
        print_json({"principal": principal, "values": values})
    elif values:
        rows = [(name, shown_quota(name, values[name])) for name in ABOUT if name in values]
        print_table(["QUOTA", "LIMIT"], rows, right=["LIMIT"])
    else:
        click.echo(f"{principal} has no quotas of its own.")


def _rows(described: QuotaDescription) -> list[tuple[str, str, str, str, str]]:
    name = described.principal
    if not described.is_own:
        name += " (default)" if described.values else ""
    throttled = f"{described.throttled_ms / 10:.0f} %" if described.throttled_ms else ""
    rows = [
        (
            name,
            quota_name,
            shown_quota(quota_name, described.values[quota_name]),
            shown_quota(quota_name, described.use[quota_name])
            if quota_name in described.use and described.principal != "default"
            else "",
            throttled,
        )
        for quota_name in ABOUT
        if quota_name in described.values
    ]
    return rows or [(name, "none", "", "", "")]


def shown_quota(name: str, value: int) -> str:
    """Return a value or a use of a quota for people."""
    if name == OVER_QUOTA:
        return format_quota(name, value)
    if "bytes" in name:
        return size_text(value) + ("/s" if name.endswith("_per_s") else "")
    if name == BUSY:
        return f"{value:,} ms/s"
    return f"{value:,}/s" if name.endswith("_per_s") else f"{value:,}"
