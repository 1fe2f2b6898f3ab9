"""Options that several commands share."""

import click
import pytest

from tidelog.cli import main
from tidelog.cli.options import (
    NameAndValue,
    Seconds,
    change_options,
    examples,
    read_moment,
    require_changes,
    server_options,
)


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("retention_ms=1d", ("retention_ms", "1d")),
        ("a=b=c", ("a", "b=c")),
        (" a = b ", ("a", "b")),
        ("a=", ("a", "")),
    ],
)
def test_a_name_and_a_value_are_taken_apart_at_the_first_sign(
    text: str, pair: tuple[str, str]
) -> None:
    assert NameAndValue().convert(text, None, None) == pair


@pytest.mark.parametrize("text", ["retention_ms", "=1d", ""])
def test_a_pair_without_name_or_equals_sign_is_rejected(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not of the form name=value"):
        NameAndValue().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("0.5", 0.5), ("90s", 90), ("250ms", 0.25), ("1h30m", 5400), ("8d", 691_200)],
)
def test_a_duration_has_units_or_is_in_seconds(text: str, seconds: float) -> None:
    assert Seconds().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf", "1h30"])
def test_what_is_no_duration_is_rejected_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter, match=f"{text!r} is not a duration such as 8d, 1h30m"):
        Seconds().convert(text, None, None)


def test_a_duration_has_bounds() -> None:
    with pytest.raises(click.BadParameter, match=r"43260.0 is not in the range 0<=x<=43200"):
        Seconds(longest=43_200).convert("12h1m", None, None)


def test_examples_stand_on_lines_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    command = click.Command("x", epilog=examples("tidelog x", "tidelog x | wc"))

    main.run(["--help"], command)

    assert capsys.readouterr().out.endswith("\n\n  Examples:\n    tidelog x\n    tidelog x | wc\n")


def test_options_of_a_broker_that_are_not_given_are_none() -> None:
    seen: dict[str, object] = {}

    @click.command()
    @server_options
    def command(**options: object) -> None:
        seen.update(options)

    main.run(["--data-dir", "d", "--node-id", "3"], command)

    assert seen == {
        "data_dir": "d",
        "listen": None,
        "insecure_listen": None,
        "http_listen": None,
        "node_id": 3,
        "peers": None,
        "bootstrap_admin": None,
        "broker_rack": None,
        "cluster_secret_file": None,
        "config_file": None,
        "log_format": None,
        "log_level": None,
        "sqs_authentication": None,
        "sqs_listen": None,
        "tls_directory": None,
    }


def test_a_moment_is_read_as_milliseconds_or_refused_with_a_way_to_write_it() -> None:
    seen: dict[str, object] = {}

    @click.command()
    @click.option("--at", callback=read_moment)
    def command(**options: object) -> None:
        seen.update(options)

    assert main.run(["--at", "1970-01-02T00:00Z"], command) == 0
    assert seen == {"at": 86_400_000}
    assert main.run([], command) == 0
    assert seen == {"at": None}
    assert main.run(["--at", "soon"], command) == 2


def test_changes_are_pairs_and_names() -> None:
    seen: dict[str, object] = {}

    @click.command()
    @change_options
    def command(**given: object) -> None:
        seen.update(given)

    assert main.run(["--set", "a=1", "--reset", "b", "--set", "c=2"], command) == 0

    assert seen == {"changes": (("a", "1"), ("c", "2")), "resets": ("b",)}


def test_to_change_nothing_is_wrong_use() -> None:
    require_changes([], ["b"])

    with pytest.raises(click.UsageError, match="no change is given"):
        require_changes([], [])
