"""Options and commands of other programs, answered with the spelling of tidelog."""

import shlex
from contextlib import suppress

import click
import pytest

from tidelog.cli import main
from tidelog.cli.hints import Hint, all_hints, hint_for

HINTS = list(all_hints())


def parse(line: str) -> None:
    """Parse a line without running it; raise if it is wrong."""
    program, *words = shlex.split(line)
    assert program == "tidelog"
    command: click.Command = main.tidelog
    ctx: click.Context | None = None
    while isinstance(command, click.Group):
        ctx = command.make_context(command.name, words, parent=ctx)
        _, found, words = command.resolve_command(ctx, [*vars(ctx)["_protected_args"], *ctx.args])
        assert found is not None
        command = found
    command.make_context(command.name, words, parent=ctx)


@pytest.mark.parametrize("line", sorted({each.line for each in HINTS}))
def test_every_suggested_line_is_right(line: str) -> None:
    with suppress(click.exceptions.Exit):  # After --help and --version; wrong use is another error.
        parse(line)


@pytest.mark.parametrize("hint", HINTS, ids=lambda hint: f"{hint.command} {hint.word}")
def test_a_foreign_word_is_answered_in_one_line(
    hint: Hint, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run([*hint.command.split(), hint.word, "x"]) == 2
    assert capsys.readouterr().err == (
        f"error: {hint.word} belongs to {hint.tool}; the same with tidelog: `{hint.line}`\n"
    )


@pytest.mark.parametrize(
    ("line", "suggestion"),
    [
        ("consume orders --property print.key=true", "consume orders --key-separator :"),
        ("consume orders -b a:1 --consumer.config=c.properties", "--broker localhost:8433"),
        ("topic --bootstrap-server a:1 --list", "tidelog topic list"),
        ("topic --create --topic x --partitions 3", "tidelog topic create orders --partitions 6"),
        ("group --describe --group g", "tidelog group describe billing"),
        ("-C -b a:1 -t orders", "tidelog consume orders"),
        ("-b a:1 -L", "tidelog topic list"),
        ("queue send jobs --message-body hello", "tidelog queue send jobs 'order 17'"),
        ("queue receive --queue-url http://a/b", "tidelog queue receive jobs"),
        ("declare queue name=jobs", "tidelog queue create jobs"),
        ("status", "tidelog cluster status"),
        ("help topic", "tidelog --help"),
        ("serve --port 9000", "tidelog serve --listen 127.0.0.1:9000"),
        ("sqs --endpoint-url=http://localhost:9324", "tidelog sqs --listen 127.0.0.1:9324"),
        ("sqs -p 9324", "tidelog sqs --listen 127.0.0.1:9324"),
        ("group reset billing", "tidelog group reset-offsets billing"),
        ("queue create jobs --visibility-timeout 30", "--config visibility_timeout_ms=30s"),
    ],
)
def test_whole_foreign_lines_are_answered(
    line: str, suggestion: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(shlex.split(line)) == 2

    shown = capsys.readouterr().err
    assert shown.startswith("error: ")
    assert shown.count("\n") == 1
    assert suggestion in shown


def test_words_that_nothing_has_keep_the_answer_of_click(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert hint_for("topic", "--colour") is None
    assert main.run(["topic", "list", "--colour"]) == 2
    assert capsys.readouterr().err.endswith("error: No such option '--colour'.\n")


@pytest.mark.parametrize("words", [["serve", "-b", "a:1"], ["log", "verify", "--broker", "a:1"]])
def test_an_address_after_a_command_without_a_broker_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(words) == 2
    assert "connects to no broker: leave out --broker" in capsys.readouterr().err
