"""The option --broker, at any place of the line, and names by option."""

import re
from collections.abc import Iterator
from importlib import import_module

import click
import pytest

from tidelog.cli import main
from tidelog.cli.connected import Connected, ConnectedCommand, ConnectedGroup, broker_address
from tidelog.cli.names import Name

Printed = pytest.CaptureFixture[str]

_OFFLINE = {"serve", "admin", "log", "completion", "demo"}
_PARTLY = {"cluster", "outbox"}
"""Commands of which some only talk to a database."""
"""Commands that connect to no broker."""


@click.group(cls=ConnectedGroup)
def group() -> None:
    """A group of connected commands."""


@group.command()
def show() -> None:
    """Print the address."""
    click.echo(broker_address())


@pytest.fixture(autouse=True)
def without_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDELOG_BROKER", raising=False)


@pytest.mark.parametrize(
    ("line", "variable", "address"),
    [
        ("show", None, "127.0.0.1:8433"),
        ("show", "", "127.0.0.1:8433"),
        ("show", "e:1", "e:1"),
        ("-b a:1 show", "e:1", "a:1"),
        ("show -b b:1", "e:1", "b:1"),
        ("--broker a:1 show --bootstrap-server b:1", None, "b:1"),
        ("show --broker localhost", None, "localhost"),
        ("show --broker=a:1,[::1]:2", None, "a:1,[::1]:2"),
        ("show -b a:1 -b a:2", None, "a:2"),
    ],
)
def test_the_innermost_address_wins(
    line: str,
    variable: str | None,
    address: str,
    capsys: Printed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if variable is not None:
        monkeypatch.setenv("TIDELOG_BROKER", variable)

    assert main.run(line.split(), group) == 0
    assert capsys.readouterr().out == f"{address}\n"


@pytest.mark.parametrize(
    "words",
    [
        ["-b", "127.0.0.1:1", "topic", "list"],
        ["topic", "-b", "127.0.0.1:1", "list"],
        ["topic", "list", "-b", "127.0.0.1:1"],
        ["-b", "127.0.0.1:2", "topic", "-b", "127.0.0.1:3", "list", "-b", "127.0.0.1:1"],
        ["-b", "127.0.0.1:1", "alerts"],
        ["--bootstrap-server", "127.0.0.1:1", "transaction", "list"],
    ],
)
def test_a_command_takes_the_address_at_any_place(words: list[str], capsys: Printed) -> None:
    assert main.run(words) == 1
    assert "cannot connect to 127.0.0.1:1: Connection refused" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["a:b", "a:1:2", "", "a:70000"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_wrong_address_is_one_line_at_any_place(
    address: str, place: int, capsys: Printed
) -> None:
    words = ["topic", "list"]
    words[place:place] = ["-b", address]

    assert main.run(words) == 2
    assert re.fullmatch(r"error: --broker: .*(host:port|from 1 to).*\n", capsys.readouterr().err)


def test_a_wrong_address_in_the_environment_is_named(
    capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_BROKER", "a:b")

    assert main.run(["topic", "list"]) == 2
    assert capsys.readouterr().err.startswith("error: TIDELOG_BROKER: 'a:b' is not a")


@pytest.mark.parametrize("words", [["serve"], ["log", "verify", "."], ["demo"]])
def test_a_command_without_a_broker_refuses_an_address(words: list[str], capsys: Printed) -> None:
    assert main.run(["-b", "a:1", *words]) == 2
    assert capsys.readouterr().err == (
        f"error: `tidelog {words[0]}` connects to no broker: leave out --broker\n"
    )


def leaves(command: click.Command) -> Iterator[click.Command]:
    """Yield the commands of a group, or the command."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from leaves(each)
    else:
        yield command


@pytest.mark.parametrize("name", main.COMMANDS)
def test_every_other_command_connects(name: str) -> None:
    lazy = main.COMMANDS[name]
    command: click.Command = getattr(import_module(lazy.module), lazy.attribute)

    connected = {isinstance(each, Connected) for each in (command, *leaves(command))}

    if name in _PARTLY:
        assert isinstance(command, Connected)
    else:
        assert connected == {name not in _OFFLINE}


@click.command(cls=ConnectedCommand)
@click.argument("name", cls=Name, kind="topic")
def named(name: str) -> None:
    """Print the name."""
    click.echo(name)


@pytest.mark.parametrize(
    "line", ["orders", "--topic orders", "--topic=orders", "orders --topic orders"]
)
def test_a_name_stands_by_position_or_after_an_option(line: str, capsys: Printed) -> None:
    assert main.run(line.split(), named) == 0
    assert capsys.readouterr().out == "orders\n"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "Missing argument 'NAME'."),
        ("--topic", "Option '--topic' requires an argument."),
        ("orders --topic bills", "--topic is 'bills', and NAME is 'orders': give one"),
    ],
)
def test_none_or_two_names_are_wrong_use(line: str, problem: str, capsys: Printed) -> None:
    assert main.run(line.split(), named) == 2
    assert capsys.readouterr().err.endswith(f"error: {problem}\n")


def test_the_groups_of_commands_take_names_by_option(
    topic: str, queue: str, capsys: Printed
) -> None:
    lines = (
        f"topic create --topic by-option-of-{topic} --partitions 2 --replication-factor 1",
        f"topic describe --topic {topic}",
        f"topic alter --topic {topic} --set retention_ms=1d",
        f"queue describe --queue {queue}",
        f"queue alter --queue {queue} --set visibility_timeout_ms=1min",
        f"group alter --group group-of-{topic} --set owner=tests",
        f"group describe --group group-of-{topic}",
        f"topic delete --topic {topic} --yes",
    )
    for line in lines:
        assert main.run(line.split()) == 0, (line, capsys.readouterr().err)
