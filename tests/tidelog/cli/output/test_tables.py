"""Tables for people, JSON for programs."""

import json

import pytest

from tidelog.cli.output.tables import (
    counted,
    nodes_text,
    print_fields,
    print_json,
    print_settings,
    print_table,
    shown,
    size_text,
)


def test_a_table_has_titles_and_aligned_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["NAME", "COUNT", "NOTE"], [("a", 1, "x"), ("bcdef", 12_345, "")], right=["COUNT"])

    assert capsys.readouterr().out == (
        "NAME    COUNT  NOTE\n"
        "a           1  x\n"
        "bcdef  12,345\n"
    )  # fmt: skip


def test_a_table_in_a_pipe_is_not_folded(capsys: pytest.CaptureFixture[str]) -> None:
    long = "n" * 300

    print_table(["NAME"], [(long,)])

    assert capsys.readouterr().out == f"NAME\n{long}\n"


def test_brackets_and_colons_mean_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["NAME"], [("[bold]:smile:[/bold]",)])

    assert capsys.readouterr().out == "NAME\n[bold]:smile:[/bold]\n"


def test_facts_stand_below_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields({"topic": "orders", "records": 1200})

    assert capsys.readouterr().out == "topic    orders\nrecords  1,200\n"


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"größe": [1, None]})

    printed = capsys.readouterr().out
    assert json.loads(printed) == {"größe": [1, None]}
    assert "größe" in printed


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (True, "yes"), (False, "no"), (1234567, "1,234,567"), ("a", "a"), (1.5, "1.5")],
)
def test_a_value_is_shown_as_people_read_it(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (5 << 20, "5.0 MiB"),
        (3 << 30, "3.0 GiB"),
        (2 << 50, "2048.0 TiB"),
    ],
)
def test_a_size_is_shown_in_a_fitting_unit(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text


def test_a_count_agrees_with_its_thing() -> None:
    assert [counted(n, "record") for n in (0, 1, 2000)] == [
        "0 records",
        "1 record",
        "2,000 records",
    ]


def test_settings_say_where_they_come_from(capsys: pytest.CaptureFixture[str]) -> None:
    print_settings({"retention_ms": "1d", "segment_ms": "7d"}, ["retention_ms"], "topic")

    assert capsys.readouterr().out == (
        "SETTING       VALUE  SOURCE\n"
        "retention_ms  1d     topic\n"
        "segment_ms    7d     default\n"
    )  # fmt: skip


def test_what_is_set_for_the_topic_is_above_what_is_set_for_the_cluster(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_settings({"a": "1", "b": "2", "c": "3"}, ["a"], "topic", of_cluster=["a", "b"])

    sources = [line.split()[-1] for line in capsys.readouterr().out.splitlines()[1:]]
    assert sources == ["topic", "cluster", "default"]


def test_nodes_are_listed_as_they_are_given() -> None:
    assert nodes_text([2, 3, 1]) == "2,3,1"
