"""Relays as processes, which are killed at their steps."""

import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import trio

import tidelog
from tests.paths import ROOT
from tests.system.integration.processes import environment
from tests.tidelog.outbox.relays import assert_exactly_once, records_of, relaying, wait_sent
from tidelog.outbox import Outbox

ROWS = 11
"""Rows before each relay: several batches."""


async def kill_relays(
    outbox: Outbox,
    dsn: str,
    data_dir: Path,
    *,
    dialect: str,
    steps: Iterable[str],
    add: Callable[[str, bytes], None],
) -> None:
    """Kill one relay after the other, each at another step; then check the log."""
    program = [sys.executable, "-m", "tests.system.integration.dying_relay", dialect, dsn]
    sent: list[tuple[str, bytes]] = []
    async with (
        tidelog.open_broker(data_dir) as broker,
        tidelog.connect(broker.address) as client,
    ):
        await client.admin.create_topic("orders", partitions=2)
        for step in steps:
            for _ in range(ROWS):
                sent.append((f"key-{len(sent) % 4}", b"%d" % len(sent)))
                add(*sent[-1])
            ended = await trio.run_process(
                [*program, broker.address, step, "2" if "save" in step else "1"],
                check=False,
                cwd=ROOT,
                env=environment(),
            )
            assert ended.returncode == -signal.SIGKILL, f"it was not killed {step}"
        async with relaying(outbox, client, dsn):
            await wait_sent(outbox, dsn)
        found = await records_of(client, "orders")
    assert_exactly_once(sent, found)
