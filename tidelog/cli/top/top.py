"""The command `tidelog top`, a live view of a cluster in the terminal (NATS: nats top)."""

import sys
from typing import Final

import click
from rich.console import Console

from tidelog.cli.client import ask
from tidelog.cli.connected import ConnectedCommand
from tidelog.cli.options import Seconds, examples, json_option
from tidelog.cli.output.tables import print_json, print_rendered
from tidelog.cli.top.activity import FAMILIES
from tidelog.cli.top.live_view import watch
from tidelog.cli.top.panels import PANELS, SORT_KEYS
from tidelog.cli.top.reader import Wanted, measure
from tidelog.cli.top.view import ViewOptions, activity_as_json, picture

_LIMIT: Final = 20
"""Default maximum of rows of a panel outside of the live view."""


@click.command(
    cls=ConnectedCommand,
    epilog=examples(
        "tidelog top",
        "tidelog top --queues --sort ready --filter 'orders-*'",
        "tidelog top --once --json",
    ),
)
@click.option("--brokers", is_flag=True, help="Show brokers; all panels without such an option.")
@click.option("--topics", is_flag=True, help="Show topics, by bytes in and out.")
@click.option("--queues", is_flag=True, help="Show queues, by the age of the oldest message.")
@click.option("--groups", is_flag=True, help="Show consumer groups, by lag in time.")
@click.option("--filter", "names", default="", metavar="GLOB", help="Show only names like this.")
@click.option(
    "--sort",
    type=click.Choice(SORT_KEYS),
    metavar="COLUMN",
    help="Sort by a column, such as age or bytes-in.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="Limit the rows of a panel.  [20; live, the screen]",
)
@click.option(
    "--interval",
    "interval_s",
    type=Seconds(0.1, 3600),
    default="2s",
    show_default=True,
    help="Read metrics this often.",
)
@click.option("--once", "is_once", is_flag=True, help="Print the tables once, and exit.")
@json_option
def top(
    interval_s: float,
    *,
    names: str,
    sort: str | None,
    limit: int | None,
    is_once: bool,
    as_json: bool,
    **panels: bool,
) -> None:
    """Show brokers, topics, queues and groups live.

    The view reads metrics of all brokers, and shows rates between two readings. Keys: q quits, 1 to
    4 show one panel and 0 shows all, s sorts by the next column. On a pipe, with --once and with
    --json, the command reads twice, prints and exits. Narrow terminals leave out columns.
    """
    shown = [key for key in PANELS if panels[key]] or list(PANELS)
    families = list(dict.fromkeys(name for key in shown for name in FAMILIES[key]))
    wanted = Wanted(families, names, interval_s)
    if not (is_once or as_json) and sys.stdout.isatty():
        options = ViewOptions(shown, sort, limit)
        ask(lambda client: watch(client, wanted, options), is_quiet=True)
        return
    options = ViewOptions(shown, sort, limit or _LIMIT)
    activity = ask(lambda client: measure(client, wanted))
    if as_json:
        print_json(activity_as_json(activity, options))
    else:
        width = Console().width if sys.stdout.isatty() else None
        print_rendered(picture(activity, options, width=width))
