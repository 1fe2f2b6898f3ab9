"""Errors of commands: wrong use that one line answers, and the first error of a group."""

from typing import cast, final

import click


@final
class WrongUse(click.ClickException):
    """A command line that one line corrects, without the usage of the command."""

    exit_code = 2


def first_of(error: BaseException) -> BaseException:
    """Return the error or the first error of a group; an interruption goes first."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    found = [first_of(member) for member in group.exceptions]
    return next((each for each in found if isinstance(each, KeyboardInterrupt)), found[0])
