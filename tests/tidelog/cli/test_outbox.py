"""`tidelog outbox`."""

import json
import sqlite3
import sys
from pathlib import Path

import pytest

from tidelog.cli import main
from tidelog.outbox import Outbox

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Return a file of SQLite with an outbox of one row."""
    path = tmp_path / "shop.db"
    outbox = Outbox(dialect="sqlite")
    connection = sqlite3.connect(path)
    connection.executescript(outbox.ddl())
    outbox.add(connection, "gone", b"paid")
    connection.commit()
    connection.close()
    return path


def test_ddl_is_what_the_outbox_says(capsys: Printed) -> None:
    assert main.run(["outbox", "ddl", "--table", "shop.events", "--no-notify"]) == 0

    printed = capsys.readouterr().out
    assert printed == Outbox("shop.events").ddl(notify=False)
    assert 'create table if not exists "shop"."events"' in printed
    assert "after insert" not in printed


def test_the_status_is_for_people_and_for_programs(database: Path, capsys: Printed) -> None:
    assert main.run(["outbox", "status", "--dsn", str(database)]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert main.run(["outbox", "status", "--dsn", str(database), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)

    assert lines["backlog"].startswith("1 rows, the oldest ")
    assert lines["relayed"] == "up to row 0"
    assert (found["backlog"], found["last_id"], found["writer_pid"]) == (1, 1, None)
    assert found["name"] == lines["transactions"]


@pytest.mark.usefixtures("at_broker")
def test_a_row_that_cannot_be_sent_ends_the_relay_with_one_line(
    database: Path, capsys: Printed
) -> None:
    assert main.run(["outbox", "relay", "--dsn", str(database)]) == 1

    assert capsys.readouterr().err == (
        "error: row 1 cannot be sent: there is no topic 'gone'; create it, or set a dead-letter"
        " topic\n"
    )


@pytest.mark.usefixtures("at_broker")
def test_a_missing_table_names_the_command_that_creates_it(tmp_path: Path, capsys: Printed) -> None:
    path = tmp_path / "empty.db"
    sqlite3.connect(path).close()
    path.touch()

    assert main.run(["outbox", "relay", "--dsn", str(path), "--table", "events"]) == 1
    said = capsys.readouterr().err
    assert said.endswith(
        "create it with the output of: tidelog outbox ddl --dialect sqlite --table events\n"
    )


def test_the_position_is_reset(database: Path, capsys: Printed) -> None:
    assert main.run(["outbox", "reset", "--dsn", str(database), "--next-id", "2"]) == 0
    assert capsys.readouterr().out == "the next relay of 'outbox' sends the rows from 2 on\n"
    assert Outbox(dialect="sqlite").status(str(database)).backlog == 0


@pytest.mark.parametrize(
    "dsn", ["postgresql://127.0.0.1:1/shop", "host=127.0.0.1 port=1", "postgres://127.0.0.1:1/x"]
)
def test_a_dsn_of_postgresql_is_recognized(dsn: str, capsys: Printed) -> None:
    assert main.run(["outbox", "status", "--dsn", dsn]) == 1

    said = capsys.readouterr().err
    assert said.startswith("error: the database cannot be used: ")
    assert said.endswith("; check the DSN and the server\n")


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "tidelog.outbox.postgresql", raising=False)

    assert main.run(["outbox", "status", "--dsn", "postgresql://127.0.0.1:1/shop"]) == 1
    assert capsys.readouterr().err == (
        "error: an outbox in PostgreSQL cannot be relayed: psycopg is missing; run: pip install"
        " 'tidelog[outbox]'\n"
    )


def test_a_wrong_table_is_a_usage_error(capsys: Printed) -> None:
    assert main.run(["outbox", "ddl", "--table", "a.b.c"]) == 2
    assert "table 'a.b.c' is no name of a table" in capsys.readouterr().err
