"""The shop of the examples: its relay and its workers are killed, and nothing is charged twice."""

import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import trio

from tests.paths import ROOT
from tests.system.integration.processes import TIDELOG, environment
from tests.system.integration.test_examples import run_example
from tests.tidelog.outbox.relays import wait_until

_KILLS = 2
_CUSTOMERS = ("alice", "bob", "carol")


async def test_a_shop_whose_programs_are_killed_charges_each_order_once(
    broker_address: str, tmp_path: Path
) -> None:
    path = tmp_path / "shop.db"
    options = ["--database", str(path), "--broker", broker_address]
    await run_example("shop.py", *options, "create")
    shop = [sys.executable, str(ROOT / "examples/shop.py"), *options, "charge"]
    relay = [*TIDELOG, "outbox", "relay", "--dsn", str(path), "--broker", broker_address]
    connection = sqlite3.connect(path)
    order_count = 0

    def payment_count() -> int:
        ((count,),) = connection.execute("select count(*) from payments").fetchall()
        return int(count)

    async def killed_when(command: list[str], condition: Callable[[], bool]) -> None:
        process = await trio.lowlevel.open_process(
            command, cwd=ROOT, env=environment(PYTHONPATH=str(ROOT)), stdout=-3
        )
        await wait_until(lambda: condition() or process.poll() is not None)
        process.kill()
        assert await process.wait() == -signal.SIGKILL

    async def both_killed_at(count: int) -> None:
        async with trio.open_nursery() as nursery:
            for command in (relay, shop):
                nursery.start_soon(killed_when, command, lambda: payment_count() >= count)

    for _ in range(_KILLS):
        for customer in _CUSTOMERS:
            order_count += 1
            await run_example("shop.py", *options, "order", customer, str(order_count))
        # The worker is killed when it commits its first payment, before it can delete the message,
        # and the relay at the same time.
        await both_killed_at(payment_count() + 1)
    await both_killed_at(order_count)
    await run_example("shop.py", *options, "charge", "--until-idle", "6")

    payments = connection.execute("select * from payments order by order_id").fetchall()
    assert payments == connection.execute("select * from orders order by id").fetchall()
    assert len(payments) == _KILLS * len(_CUSTOMERS)
    connection.close()
