"""The progress of `tidelog produce`."""

import io

import trio
from rich.console import Console

from tidelog.cli.produce import show_progress


async def test_those_who_watch_see_count_and_rate(autojump_clock: trio.abc.Clock) -> None:
    del autojump_clock
    screen = io.StringIO()
    counts = iter(range(0, 1_000_000, 5_000))

    async with show_progress(
        lambda: next(counts), Console(file=screen, force_terminal=True, width=80)
    ):
        await trio.sleep(0.35)

    assert "10,000 records acknowledged" in screen.getvalue()
    assert "50,000/s" in screen.getvalue()


async def test_nobody_is_shown_anything_without_a_terminal() -> None:
    output = io.StringIO()

    async with show_progress(lambda: 0, Console(file=output)):
        await trio.lowlevel.checkpoint()

    assert output.getvalue() == ""
