"""How far `tidelog produce` is, for those who watch."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import trio
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

_INTERVAL_S = 0.1


@asynccontextmanager
async def show_progress(
    acknowledged_count: Callable[[], int], console: Console
) -> AsyncGenerator[None, None]:
    """Show what was acknowledged, and how fast, while the block runs; nothing stays of it.

    Nothing is shown where the console is not a terminal.
    """
    if not console.is_terminal:
        yield
        return
    progress = Progress(
        SpinnerColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.completed:,.0f} records acknowledged"),
        TextColumn("{task.fields[rate]:,.0f}/s"),
        console=console,
        auto_refresh=False,
        transient=True,
    )
    task = progress.add_task("", total=None, rate=0.0)

    async def keep_showing() -> None:
        last_count, last_at = 0, trio.current_time()
        while True:
            await trio.sleep(_INTERVAL_S)
            count, now = acknowledged_count(), trio.current_time()
            progress.update(task, completed=count, rate=(count - last_count) / (now - last_at))
            progress.refresh()
            last_count, last_at = count, now

    with progress:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_showing)
            yield
            nursery.cancel_scope.cancel()
