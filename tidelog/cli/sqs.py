"""The command `tidelog sqs`, which serves the HTTP API of Amazon SQS."""

import click
import trio

from tidelog.cli.client import open_client
from tidelog.cli.connected import ConnectedCommand, broker_address
from tidelog.cli.options import examples
from tidelog.cli.signals import on_signal


@click.command(
    cls=ConnectedCommand,
    epilog=examples("tidelog sqs --no-auth", "tidelog sqs -b broker:8433 --listen 0.0.0.0:9324"),
)
@click.option(
    "--listen",
    default="127.0.0.1:9324",
    show_default=True,
    metavar="HOST:PORT",
    help="Serve HTTP at this address.",
)
@click.option("--no-auth", is_flag=True, help="Check no signatures; only on this machine.")
def sqs(listen: str, *, no_auth: bool) -> None:
    """Serve Amazon SQS over the queues of a cluster.

    Any number of these processes may run: they keep nothing but connections.
    """
    del no_auth
    trio.run(_serve, broker_address(), listen)


async def _serve(broker: str, listen: str) -> None:
    # Not at the top: only this command needs httptools.
    from tidelog.gateway.sqs.server import FrontConfig, open_front

    host, _, port = listen.rpartition(":")
    ending = trio.Event()
    async with (
        on_signal(ending.set),
        open_client(broker) as client,
        open_front(client, FrontConfig(host, int(port))) as front,
    ):
        click.echo(f"tidelog sqs listening on {front.address}", err=True)
        await ending.wait()
