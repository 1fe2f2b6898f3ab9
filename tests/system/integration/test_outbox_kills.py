"""Relays of SQLite as processes: killed at each step of a batch."""

from pathlib import Path

from tests.system.integration.outbox_kills import kill_relays
from tests.tidelog.outbox.relays import sqlite_outbox

STEPS = ["after save", "after stage", "before commit", "after commit", "before save"]


async def test_relays_of_sqlite_that_are_killed_send_each_row_once(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    outbox, connection = sqlite_outbox(path)

    def add(key: str, value: bytes) -> None:
        outbox.add(connection, "orders", value, key=key.encode())
        connection.commit()

    await kill_relays(
        outbox, str(path), tmp_path / "broker", dialect="sqlite", steps=STEPS, add=add
    )
    connection.close()
