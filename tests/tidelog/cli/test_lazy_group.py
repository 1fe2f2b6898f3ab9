"""Groups of commands."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tidelog.cli import main
from tidelog.cli.lazy_group import LazyCommand, LazyGroup, OrderedGroup

MODULE = "a_command_for_this_test"


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LazyGroup]:
    """Return a group with one command that works, in a module of its own, and one that is gone."""
    (tmp_path / f"{MODULE}.py").write_text(
        "import click\n@click.command()\ndef greet():\n    click.echo('hello')\n", encoding="ascii"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    commands = {
        "greet": LazyCommand(MODULE, "greet", "Say hello."),
        "absent": LazyCommand("no_such_module", "absent", "Never loaded."),
    }
    yield LazyGroup("group", lazy=commands, help="A group.")
    sys.modules.pop(MODULE, None)


def test_a_list_of_commands_imports_none(
    group: LazyGroup, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main.run(["--help"], group)

    assert status == 0
    assert capsys.readouterr().out.endswith(
        "Commands:\n  greet   Say hello.\n  absent  Never loaded.\n"
    )
    assert MODULE not in sys.modules


def test_a_command_is_imported_when_it_is_called(
    group: LazyGroup, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main.run(["greet"], group)

    assert (status, capsys.readouterr().out) == (0, "hello\n")


def test_an_unknown_command_is_told_what_there_is(
    group: LazyGroup, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main.run(["geret"], group)

    assert status == 2
    assert capsys.readouterr().err.endswith("No such command 'geret'. Did you mean 'greet'?\n")


def test_an_ordered_group_lists_its_commands_as_they_were_added(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @click.group(cls=OrderedGroup)
    def group() -> None:
        """A group."""

    for name in ("zebra", "ant"):
        group.add_command(click.Command(name, short_help=f"The {name}."))

    main.run(["--help"], group)

    assert capsys.readouterr().out.endswith("Commands:\n  zebra  The zebra.\n  ant    The ant.\n")
