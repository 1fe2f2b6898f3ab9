"""Options that several commands share."""

import click
import pytest

from tidelog.cli import main
from tidelog.cli.options import (
    NameAndValue,
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
        "node_id": 3,
        "peers": None,
        "broker_rack": None,
        "cluster_secret_file": None,
        "config_file": None,
        "log_format": None,
        "log_level": None,
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
