"""Groups of commands: in the order in which they are written, imported when they are used."""

from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple, final

import click


class LazyCommand(NamedTuple):
    """Where a command is, and what the list of commands says of it."""

    module: str
    attribute: str
    about: str
    """One sentence. It is repeated here so that a list of commands imports none of them."""


@final
class LazyGroup(click.Group):
    """Commands by name; nothing is imported for a list of them."""

    def __init__(self, name: str, *, lazy: Mapping[str, LazyCommand], help: str) -> None:  # noqa: A002 - click's name
        """Offer the commands `lazy`."""
        super().__init__(name, help=help, no_args_is_help=True)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order in which they are shown."""
        del ctx
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        del ctx
        found = self._lazy.get(cmd_name)
        if found is None:
            return None
        command = getattr(import_module(found.module), found.attribute)
        assert isinstance(command, click.Command), f"{found} is not a command"
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name; an unknown one is told what there is."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            name = error.command_name
            raise click.exceptions.NoSuchCommand(name, possibilities=self._lazy, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, found.about) for name, found in self._lazy.items()])


@final
class OrderedGroup(click.Group):
    """Commands in the order in which they were added, which is that of learning them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names."""
        del ctx
        return list(self.commands)
