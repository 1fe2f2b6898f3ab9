"""Wrong use that one line answers."""

from typing import final

import click


@final
class WrongUse(click.ClickException):
    """A command line that one line corrects, without the usage of the command."""

    exit_code = 2
