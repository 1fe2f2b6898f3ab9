"""Passwords of commands: from a prompt, a file or standard input, never from an argument.

Arguments are visible to all users of a machine, and stay in the history of a shell.
"""

import sys
from collections.abc import Callable
from typing import Final, TypeVar

import click

from tidelog.wire.env.real.user_files import UserFiles

Decorated = TypeVar("Decorated", bound=Callable[..., object])

_STDIN: Final = "-"


def password_options(command: Decorated) -> Decorated:
    """Add the options of a password to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = (
    click.option(
        "--password-file",
        metavar="FILE",
        help="Read the password from this file; - is standard input.",
    ),
    click.option("--no-password", is_flag=True, help="Leave the user without a password."),
)


def read_password(password_file: str | None, *, no_password: bool) -> str | None:
    """Return the password that the options name, or that the user types twice.

    Raises:
        click.UsageError: Both options are given, or there is no terminal to ask on.
        click.Abort: The user ended the prompt.
        ConfigError: The file cannot be read.
    """
    if no_password:
        if password_file is not None:
            raise click.UsageError("choose one: --password-file FILE or --no-password")
        return None
    if password_file == _STDIN:
        return sys.stdin.read().rstrip("\r\n")
    if password_file is not None:
        return UserFiles().read(password_file).rstrip("\r\n")
    if not sys.stdin.isatty():
        raise click.UsageError(
            "password needed: standard input is not a terminal; add --password-file FILE, or"
            " --password-file - to read it from standard input"
        )
    password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return password
