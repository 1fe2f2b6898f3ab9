"""How far `tidelog produce` is, for those who watch."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from client.producer import Producer

_INTERVAL_S = 0.1


@asynccontextmanager
async def show_progress(producer: Producer) -> AsyncGenerator[None, None]:
    """Show what was acknowledged while the block runs, where standard error is a terminal.

    Not while somebody types the records, who would be disturbed.
    """
    if not sys.stderr.isatty() or (sys.stdin is not None and sys.stdin.isatty()):
        yield
        return
    progress = Progress(
        SpinnerColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.completed:,.0f} records acknowledged"),
        TextColumn("{task.fields[rate]:,.0f}/s"),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
    )
    task = progress.add_task("", total=None, rate=0.0)

    async def keep_showing() -> None:
        last_count, last_at = 0, trio.current_time()
        while True:
            await trio.sleep(_INTERVAL_S)
            count, now = producer.statistics().acknowledged_record_count, trio.current_time()
            progress.update(task, completed=count, rate=(count - last_count) / (now - last_at))
            progress.refresh()
            last_count, last_at = count, now

    with progress:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_showing)
            yield
            nursery.cancel_scope.cancel()
