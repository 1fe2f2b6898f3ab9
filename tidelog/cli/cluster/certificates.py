"""The commands `tidelog cluster init-tls`, `issue-cert` and `certificates`."""

from pathlib import Path
from typing import Final

import click

from tidelog.cli.client import ask
from tidelog.cli.connected import ConnectedCommand
from tidelog.cli.options import examples, json_option
from tidelog.cli.output.tables import print_json, print_table
from tidelog.cli.output.times import moment_text
from tidelog.client.admin.certificates import NodeCertificate
from tidelog.wire.env.real.real_env import RealClock, real_env

_DAY_MS: Final = 24 * 3_600_000
_NAME_BYTES: Final = 4
"""Random bytes of the name of a cluster."""
_DAYS_MAX: Final = 3_650

_out_option = click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write to this new directory.",
)


@click.command(
    "init-tls",
    epilog=examples(
        "tidelog cluster init-tls --nodes 1=host1,2=host2,3=host3 --out tls",
        "tidelog cluster init-tls --nodes 1=host1,1=10.0.0.1 --out tls --no-ca-key",
    ),
)
@click.option(
    "--nodes",
    required=True,
    metavar="1=HOST,...",
    help="Name the hosts of each node; ports are ignored.",
)
@click.option("--cluster", "name", metavar="NAME", help="Name the cluster.  [a random name]")
@click.option("--no-ca-key", is_flag=True, help="Throw the key of the CA away.")
@_out_option
def init_tls(nodes: str, name: str | None, out: Path, *, no_ca_key: bool) -> None:
    """Create the CA of a cluster and a certificate for each node.

    Each node gets a directory to copy to its machine, for `tidelog serve --tls DIR/node-1`. A node
    with several names is listed several times. With the key in DIR/ca, more certificates can be
    issued: keep it away from the nodes.
    """
    # Not at the top: cryptography is an extra.
    from tidelog.certificates.directories import write_cluster

    directories = write_cluster(
        out,
        _hosts(nodes),
        cluster=name or f"cluster-{real_env().random.randbytes(_NAME_BYTES).hex()}",
        now_ms=RealClock().now_ms(),
        keeps_key=not no_ca_key,
    )
    for directory in directories:
        click.echo(f"{directory}: copy it to its machine, and run: tidelog serve --tls {directory}")
    click.echo(f"{out / 'ca' / 'ca.pem'}: for clients, as --tls-ca")
    if not no_ca_key:
        click.echo(f"{out / 'ca' / 'ca-key.pem'}: the key of the CA; keep it offline")


def _hosts(text: str) -> dict[int, list[str]]:
    """Return the hosts by node id.

    Raises:
        click.BadParameter: The text is no list of nodes.
    """
    from tidelog.client.cluster.address import parse_addresses
    from tidelog.wire.errors import ConfigError

    found: dict[int, list[str]] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        number, _, host = item.partition("=")
        if not (number.isascii() and number.isdecimal() and int(number) and host):
            raise click.BadParameter(f"{item!r} is no node; write 1=HOST", param_hint="--nodes")
        try:
            (address,) = parse_addresses(host)
        except ConfigError as error:
            raise click.BadParameter(str(error), param_hint="--nodes") from error
        found.setdefault(int(number), []).append(address.host)
    if not found:
        raise click.BadParameter("no node is given; write 1=HOST", param_hint="--nodes")
    return found


@click.command(
    "issue-cert",
    epilog=examples(
        "tidelog cluster issue-cert user:alice --ca tls --out alice",
        "tidelog cluster issue-cert node:4 --host host4 --ca tls --out node-4",
    ),
)
@click.argument("principal")
@click.option(
    "--ca",
    "authority",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Use the CA in this directory of init-tls.",
)
@click.option("--host", "hosts", multiple=True, help="Name a host of the node; repeatable.")
@click.option(
    "--days",
    type=click.IntRange(1, _DAYS_MAX),
    default=398,
    metavar="N",
    help="Set the days until it expires.  [398]",
)
@_out_option
def issue_cert(
    principal: str, authority: Path, hosts: tuple[str, ...], *, days: int, out: Path
) -> None:
    """Issue a certificate for a user or node.

    PRINCIPAL is user:NAME, or node:ID with --host.
    """
    from tidelog.certificates.directories import read_authority, write_issued
    from tidelog.wire.errors import InvalidRequestError
    from tidelog.wire.security.principal import ANONYMOUS, PrincipalKind, parse_principal

    try:
        found = parse_principal(principal)
    except InvalidRequestError as error:
        raise click.BadParameter(str(error), param_hint="PRINCIPAL") from error
    if found == ANONYMOUS:
        raise click.BadParameter("anonymous has no certificate", param_hint="PRINCIPAL")
    if (found.kind is PrincipalKind.NODE) != bool(hosts):
        raise click.UsageError("a node needs --host, and a user has none")
    now_ms = RealClock().now_ms()
    write_issued(out, read_authority(authority), found, now_ms=now_ms, hosts=hosts, days=days)
    click.echo(f"{out}: cert.pem, key.pem and ca.pem of {found}")


@click.command(
    cls=ConnectedCommand,
    epilog=examples("tidelog cluster certificates"),
)
@json_option
def certificates(*, as_json: bool) -> None:
    """Show the certificates of all brokers, and their expiry."""
    found = ask(lambda client: client.security.list_certificates())
    now_ms = RealClock().now_ms()
    if as_json:
        print_json([_as_json(each) for each in found])
        return
    print_table(
        ["NODE", "TLS", "NAME", "EXPIRES", "DAYS", "CA EXPIRES"],
        [
            (
                str(each.node_id),
                each.tls or "?",
                each.name or (str(each.error) if each.error else "-"),
                _day(each.expires_at_ms),
                _days_left(each.expires_at_ms, now_ms),
                _day(each.authority_expires_at_ms),
            )
            for each in found
        ],
    )


def _as_json(each: NodeCertificate) -> dict[str, object]:
    return {
        "node_id": each.node_id,
        "tls": each.tls or None,
        "name": each.name or None,
        "serial": each.serial or None,
        "expires_at_ms": each.expires_at_ms,
        "authority_expires_at_ms": each.authority_expires_at_ms,
        "error": None if each.error is None else str(each.error),
    }


def _day(at_ms: int | None) -> str:
    return "-" if at_ms is None else moment_text(at_ms)[:10]


def _days_left(at_ms: int | None, now_ms: int) -> str:
    return "-" if at_ms is None else str((at_ms - now_ms) // _DAY_MS)
