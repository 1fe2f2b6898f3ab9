"""Names and placeholders of SQL."""

import sqlite3

import pytest

from tidelog.database.dialect import (
    checked_dialect,
    checked_style,
    checked_table,
    in_style,
    literal,
    placeholders,
    quoted,
)
from tidelog.database.seconds import seconds_of
from tidelog.wire.errors import ConfigError


def test_placeholders_are_those_of_the_style() -> None:
    assert placeholders("format", 2) == "(%s, %s)"
    assert placeholders("qmark", 2, rows=2) == "(?, ?), (?, ?)"
    assert placeholders("dollar", 2, rows=2) == "($1, $2), ($3, $4)"
    assert in_style("a = ? and b = ?", "dollar") == "a = $1 and b = $2"
    assert in_style("a = ? and b = ?", "format") == "a = %s and b = %s"


@pytest.mark.parametrize("name", ['a"b', "select", "Ünïcode", "a'; drop table x; --", "with space"])
def test_any_name_is_quoted(name: str) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute(f"create table {quoted(checked_table(name))} (a)")

    assert connection.execute("select name from sqlite_master").fetchall() == [(name,)]
    assert connection.execute(f"select {literal(name)}").fetchall() == [(name,)]
    connection.close()


def test_a_schema_is_quoted_apart() -> None:
    assert quoted('shop."x') == '"shop"."""x"'


@pytest.mark.parametrize("name", ["", ".", "a.b.c", "a.", "x" * 49, "a%s", "a?", "a$1", "a\x00"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is no name of a table: give NAME or SCHEMA"):
        checked_table(name)


def test_unknown_dialects_and_styles_are_refused() -> None:
    with pytest.raises(ConfigError, match="dialect 'mysql' is unknown: use 'postgresql' or"):
        checked_dialect("mysql")
    with pytest.raises(ConfigError, match="paramstyle 'named' is unknown: use 'format'"):
        checked_style("named", "sqlite")
    assert checked_style(None, "sqlite") == "qmark"
    assert checked_style(None, checked_dialect("postgresql")) == "format"


def test_an_age_is_a_duration_or_seconds() -> None:
    assert seconds_of("keep", "7d") == 7 * 86_400
    assert seconds_of("keep", 1.5) == 1.5
    for age in ("soon", "7", -1, float("nan")):
        with pytest.raises(ConfigError, match=r"keep is .*: it must be a duration"):
            seconds_of("keep", age)
