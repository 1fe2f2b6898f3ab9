"""The command `tidelog`: commands, errors and exit status."""

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

from tidelog.cli import main
from tidelog.cli.errors import CommandError, reason_of
from tidelog.cli.lazy_group import LazyCommand, LazyGroup, OrderedGroup
from tidelog.wire.errors import ConfigError, ConnectionLostError

INTERRUPTED = 130
BROKEN_PIPE = 141


def status_after(error: BaseException) -> int:
    """Return the exit status of a command that raises an error."""

    @click.command()
    def broken() -> None:
        raise error

    return main.run([], broken)


def all_commands() -> Iterator[tuple[list[str], click.Command]]:
    """Yield every command and the words that call it."""
    for name, lazy in main.COMMANDS.items():
        command: click.Command = getattr(import_module(lazy.module), lazy.attribute)
        if isinstance(command, click.Group):
            yield from (([name, part], command.commands[part]) for part in command.commands)
        else:
            yield [name], command


COMMANDS = list(all_commands())


@pytest.mark.parametrize(("words", "command"), COMMANDS, ids=[" ".join(w) for w, _ in COMMANDS])
def test_every_command_explains_itself_with_an_example(
    words: list[str], command: click.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.name == words[-1]

    status = main.run([*words, "--help"])

    printed = capsys.readouterr().out
    assert status == 0
    assert printed.startswith(f"Usage: tidelog {' '.join(words)} ")
    assert "Example" in printed
    assert f"tidelog {' '.join(words)}" in printed.partition("Example")[2]


@pytest.mark.parametrize("name", main.COMMANDS)
def test_the_list_of_commands_matches_the_help_of_each_command(name: str) -> None:
    lazy = main.COMMANDS[name]
    command: click.Command = getattr(import_module(lazy.module), lazy.attribute)

    assert command.get_short_help_str(limit=100) == lazy.about


def test_help_loads_neither_the_client_nor_the_broker_nor_what_they_need() -> None:
    heavy = {
        "trio", "rich", "msgspec",
        "tidelog.client.client", "tidelog.broker.server", "tidelog.wire.errors",
    }  # fmt: skip
    code = f"""
import sys, tidelog.cli.main as main
status = main.run(["--help"])
print(status, {heavy!r} & set(sys.modules), file=sys.stderr)
"""

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert "Commands:\n  serve" in result.stdout
    assert result.stderr == "0 set()\n"


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tidelog ")


def test_without_a_command_the_help_is_shown_as_wrong_use(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = main.run([])

    shown = capsys.readouterr()
    assert (status, shown.out) == (2, "")
    assert "Commands:\n" in shown.err


def test_an_unknown_command_is_wrong_use_and_the_next_best_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = main.run(["prodcue"])

    assert status == 2
    assert capsys.readouterr().err == (
        "Usage: tidelog [OPTIONS] COMMAND [ARGS]...\n"
        "Try 'tidelog --help' for help.\n"
        "\n"
        "error: No such command 'prodcue'. Did you mean 'produce'?\n"
    )


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ConfigError("a is wrong;\nb is wrong"), "error: a is wrong; b is wrong"),
        (FileNotFoundError(2, "No such file", "/nope"), "error: /nope: No such file"),
        (OSError("odd"), "error: odd"),
        (click.ClickException("not now"), "error: not now"),
        (ExceptionGroup("", [ConnectionLostError("lost")]), "error: lost"),
        (
            ExceptionGroup("", [ExceptionGroup("", [ConnectionLostError("lost")])]),
            "error: lost",
        ),
    ],
)
def test_an_error_is_one_line(
    error: Exception, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = status_after(error)

    assert status == 1
    assert capsys.readouterr().err == f"{line}\n"


def test_notes_of_an_error_are_part_of_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    error = ConnectionLostError("lost")
    error.add_note("3 records with it")

    status_after(error)

    assert capsys.readouterr().err == "error: lost; 3 records with it\n"


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        click.Abort(),
        BaseExceptionGroup("", [ConnectionLostError("lost"), KeyboardInterrupt()]),
    ],
)
def test_an_interruption_is_quiet_and_has_a_status_of_its_own(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    status = status_after(error)

    assert status == INTERRUPTED
    assert capsys.readouterr().err.strip() == ""


@pytest.mark.parametrize(
    "error", [BrokenPipeError(32, "Broken pipe"), ExceptionGroup("", [BrokenPipeError(32, "")])]
)
def test_a_reader_that_is_gone_ends_a_command_quietly(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        status = status_after(error)
        output.write("what is written later goes nowhere")

    assert status == BROKEN_PIPE
    assert capsys.readouterr().err == ""


def test_a_status_that_a_command_chose_is_kept() -> None:
    assert status_after(click.exceptions.Exit(3)) == 3


def test_a_defect_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        status_after(ZeroDivisionError())


def test_an_error_on_a_closed_standard_error_is_still_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Gone(io.StringIO):
        def write(self, text: str, /) -> int:
            del text
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())

    assert status_after(ConfigError("wrong")) == 1


def test_an_argument_that_is_not_utf_8_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    @click.argument("name")
    def command(name: str) -> None:
        name.encode()

    status = main.run(["caf\udce9"], command)

    assert status == 2
    assert capsys.readouterr().err == "error: the argument 'caf\\udce9' is not UTF-8 text\n"


def test_an_encoding_error_outside_of_the_arguments_is_a_defect() -> None:
    with pytest.raises(UnicodeEncodeError):
        status_after(UnicodeEncodeError("utf-8", "caf\udce9", 3, 4, "surrogates not allowed"))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConfigError("a is wrong"), "a is wrong"),
        (CommandError("line 3 is wrong"), "line 3 is wrong"),
        (FileNotFoundError(2, "No such file", "/nope"), "/nope: No such file"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError("odd"), "odd"),
        (ZeroDivisionError(), None),
        (KeyboardInterrupt(), None),
    ],
)
def test_only_a_defect_has_no_reason(error: BaseException, reason: str | None) -> None:
    assert reason_of(error) == reason


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


def test_an_unknown_command_gets_suggestions(
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
