"""The live view of `tidelog top`, on a terminal.

Shell: reads, draws, and obeys keys.
"""

from dataclasses import replace
from typing import Final, final

import trio
from rich.console import Console
from rich.live import Live

from tidelog.cli.top.activity import Reading, activity_of
from tidelog.cli.top.keys import keys_of_terminal, read_keys
from tidelog.cli.top.panels import PANELS
from tidelog.cli.top.reader import Wanted, count_alerts, read
from tidelog.cli.top.view import ViewOptions, picture
from tidelog.client.client import Client
from tidelog.wire.errors import TidelogError

_PATIENCE_S: Final = 10.0
"""Seconds for one reading."""
_LATE_S: Final = 2.0
"""Seconds after which a missing reading is reported."""
_REDRAW_S: Final = 1.0
_ALERTS_EVERY_S: Final = 30.0


@final
class LiveView:
    """The view on a terminal, and what keys change about it."""

    def __init__(self, live: Live, wanted: Wanted, *, options: ViewOptions, first: Reading) -> None:
        self._live = live
        self._wanted = wanted
        self._offered = options
        """The panels that the command line names."""
        self._options = options
        self._reading = first
        self._activity = activity_of(None, first)
        self._failure = ""
        self.alert_count: int | None = None
        self._drawn: object = None
        self.has_keys = False
        self.ended = trio.Event()

    def add(self, reading: Reading) -> None:
        """Show the activity since the last reading."""
        self._activity = activity_of(self._reading, reading, alert_count=self.alert_count)
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
            self._options = replace(self._options, panels=offered)
        elif key in ("1", "2", "3", "4") and (panel := panels[int(key) - 1]) in offered:
            self._options = replace(self._options, panels=(panel,))
        elif key == "s":
            self._options = replace(self._options, sort=self._next_sort())
        self.draw()

    def draw(self) -> None:
        """Draw the view in the present size of the terminal, unless it shows that already."""
        width, height = self._live.console.size
        notice = self._notice()
        contents = (self._activity, self._options, width, height, notice)
        if contents == self._drawn:
            return
        self._drawn = contents
        shown = picture(
            self._activity,
            self._options,
            width=width,
            height=height,
            notice=notice,
            keys=self._keys() if self.has_keys else "",
        )
        self._live.update(shown, refresh=True)

    def _next_sort(self) -> str | None:
        """Return the key of the next column of the first panel; after the last one, `None`."""
        keys = [None, *(each.key for each in PANELS[self._options.panels[0]].columns)]
        sort = self._options.sort
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
        sort = f"s sort: {self._options.sort or 'default'}"
        return "  ".join(["q quit", *panels, *(["0 all"] if panels else []), sort])


async def watch(client: Client, wanted: Wanted, options: ViewOptions) -> None:
    """Draw the activity until the user quits."""
    first = await read(client, wanted)
    console = Console(markup=False, highlight=False, emoji=False)
    with (
        Live(console=console, screen=True, auto_refresh=False) as live,
        keys_of_terminal() as descriptor,
    ):
        view = LiveView(live, wanted, options=options, first=first)
        view.has_keys = descriptor is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_read_often, client, wanted, view)
            nursery.start_soon(_redraw_often, view)
            nursery.start_soon(_count_alerts_often, client, view)
            if descriptor is not None:
                nursery.start_soon(read_keys, descriptor, view.on_key)
            await view.ended.wait()
            nursery.cancel_scope.cancel()


async def _read_often(client: Client, wanted: Wanted, view: LiveView) -> None:
    due = trio.current_time()
    while True:
        due = max(due + wanted.interval_s, trio.current_time())
        await trio.sleep_until(due)
        with trio.move_on_after(_PATIENCE_S) as patience:
            try:
                view.add(await read(client, wanted))
            except TidelogError as error:
                view.failed(str(error))
        if patience.cancelled_caught:
            view.failed("no broker answers")


async def _redraw_often(view: LiveView) -> None:
    """Draw in steady steps: the terminal may get another size, and figures may get old."""
    while True:
        view.draw()
        await trio.sleep(_REDRAW_S)


async def _count_alerts_often(client: Client, view: LiveView) -> None:
    """Check alerts now and then: that asks for all queues and groups with thresholds."""
    while True:
        view.alert_count = await count_alerts(client)
        await trio.sleep(_ALERTS_EVERY_S)
