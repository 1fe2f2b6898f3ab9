"""The command `tidelog top`, a live view of a cluster in the terminal (NATS: nats top)."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple, final

import click
import trio
from rich.console import Console
from rich.live import Live

from tidelog.cli.client import ask, broker_option
from tidelog.cli.errors import CommandError
from tidelog.cli.options import Seconds, examples, json_option
from tidelog.cli.output.tables import print_json, print_rendered
from tidelog.cli.top.activity import FAMILIES, Activity, Reading, activity_of
from tidelog.cli.top.keys import keys_of_terminal, read_keys
from tidelog.cli.top.panels import PANELS, SORT_KEYS
from tidelog.cli.top.view import Selection, activity_as_json, picture
from tidelog.client.client import Client
from tidelog.wire.errors import TidelogError, UnsupportedVersionError

_PATIENCE_S: Final = 10.0
"""Seconds for one reading of a live view."""
_LATE_S: Final = 2.0
"""Seconds after which a missing reading is reported."""
_REDRAW_S: Final = 1.0


class Wanted(NamedTuple):
    """What a view asks for."""

    families: Sequence[str]
    names: str
    """Globs for names; empty for all."""
    interval_s: float


@click.command(
    epilog=examples(
        "tidelog top",
        "tidelog top --queues --sort ready --filter 'orders-*'",
        "tidelog top --once --json",
    )
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
    default=20,
    show_default=True,
    help="Limit the rows of a panel.",
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
@broker_option
@json_option
def top(
    broker: str,
    interval_s: float,
    *,
    names: str,
    sort: str | None,
    limit: int,
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
    selection = Selection(shown, sort, limit)
    if not (is_once or as_json) and sys.stdout.isatty():
        ask(broker, lambda client: _watch(client, wanted, selection), is_quiet=True)
        return
    activity = ask(broker, lambda client: _measure(client, wanted))
    if as_json:
        print_json(activity_as_json(activity, selection))
    else:
        width = Console().width if sys.stdout.isatty() else None
        print_rendered(picture(activity, selection, width=width))


async def _measure(client: Client, wanted: Wanted) -> Activity:
    """Return the activity between two readings."""
    before = await _read(client, wanted)
    await trio.sleep(wanted.interval_s)
    return activity_of(before, await _read(client, wanted))


async def _read(client: Client, wanted: Wanted) -> Reading:
    """Read the metrics and the health of a cluster.

    Raises:
        CommandError: No broker offers metrics.
    """
    brokers = await client.admin.metrics(wanted.families, wanted.names)
    read_at = trio.current_time()
    has_topics = "log_bytes" in wanted.families  # Their partitions out of sync are counted.
    cluster = await client.admin.describe_cluster(with_partitions=has_topics)
    old = [each.error for each in brokers if isinstance(each.error, UnsupportedVersionError)]
    if old and all(each.error is not None for each in brokers):
        raise CommandError(f"no broker offers metrics: {old[0]}; upgrade the brokers")
    return Reading(cluster, brokers, read_at)


@final
class _LiveView:
    """The view on a terminal, and what keys change about it."""

    def __init__(self, live: Live, wanted: Wanted, selection: Selection, reading: Reading) -> None:
        self._live = live
        self._wanted = wanted
        self._offered = selection
        """The panels that the command line names."""
        self._selection = selection
        self._reading = reading
        self._activity = activity_of(None, reading)
        self._failure = ""
        self.has_keys = False
        self.ended = trio.Event()

    def add(self, reading: Reading) -> None:
        """Show the activity since the last reading."""
        self._activity = activity_of(self._reading, reading)
        self._reading, self._failure = reading, ""
        self.draw()

    def failed(self, reason: str) -> None:
        """Show that a reading failed."""
        self._failure = reason
        self.draw()

    def on_key(self, key: str) -> None:
        """Change what is shown, or end the view."""
        panels, offered = list(PANELS), self._offered.panels
        if key in ("q", "Q"):
            self.ended.set()
        elif key == "0":
            self._selection = replace(self._selection, panels=offered)
        elif key in ("1", "2", "3", "4") and (panel := panels[int(key) - 1]) in offered:
            self._selection = replace(self._selection, panels=(panel,))
        elif key == "s":
            self._selection = replace(self._selection, sort=self._next_sort())
        self.draw()

    def draw(self) -> None:
        """Draw the view in the present size of the terminal."""
        width, height = self._live.console.size
        shown = picture(
            self._activity,
            self._selection,
            width=width,
            height=height,
            notice=self._notice(),
            keys=self._keys() if self.has_keys else "",
        )
        self._live.update(shown, refresh=True)

    def _next_sort(self) -> str | None:
        """Return the key of the next column of the first panel; after the last one, `None`."""
        keys = [None, *(each.key for each in PANELS[self._selection.panels[0]].columns)]
        sort = self._selection.sort
        return keys[(keys.index(sort) + 1) % len(keys)] if sort in keys else keys[1]

    def _notice(self) -> str:
        late_s = trio.current_time() - self._reading.at_s - self._wanted.interval_s
        if late_s < _LATE_S:
            return ""
        reason = f": {self._failure}" if self._failure else ""
        return f"the figures are {late_s + self._wanted.interval_s:.0f} s old{reason}"

    def _keys(self) -> str:
        panels = [
            f"{number} {key}"
            for number, key in enumerate(PANELS, 1)
            if key in self._offered.panels and len(self._offered.panels) > 1
        ]
        sort = f"s sort: {self._selection.sort or 'default'}"
        return "  ".join(["q quit", *panels, *(["0 all"] if panels else []), sort])


async def _watch(client: Client, wanted: Wanted, selection: Selection) -> None:
    """Draw the activity until the user quits."""
    first = await _read(client, wanted)
    console = Console(markup=False, highlight=False, emoji=False)
    with (
        Live(console=console, screen=True, auto_refresh=False) as live,
        keys_of_terminal() as descriptor,
    ):
        view = _LiveView(live, wanted, selection, first)
        view.has_keys = descriptor is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_read_often, client, wanted, view)
            nursery.start_soon(_redraw_often, view)
            if descriptor is not None:
                nursery.start_soon(read_keys, descriptor, view.on_key)
            await view.ended.wait()
            nursery.cancel_scope.cancel()


async def _read_often(client: Client, wanted: Wanted, view: _LiveView) -> None:
    due = trio.current_time()
    while True:
        due = max(due + wanted.interval_s, trio.current_time())
        await trio.sleep_until(due)
        with trio.move_on_after(_PATIENCE_S) as patience:
            try:
                view.add(await _read(client, wanted))
            except TidelogError as error:
                view.failed(str(error))
        if patience.cancelled_caught:
            view.failed("no broker answers")


async def _redraw_often(view: _LiveView) -> None:
    """Draw in steady steps: the terminal may get another size, and figures may get old."""
    while True:
        view.draw()
        await trio.sleep(_REDRAW_S)
