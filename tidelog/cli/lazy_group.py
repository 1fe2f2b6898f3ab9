"""Command groups that keep the order of definition and import commands on use."""

import gc
from collections.abc import Generator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem


class LazyCommand(NamedTuple):
    """The place of a command, and its line in the list of commands."""

    module: str
    attribute: str
    about: str
    """One sentence, repeated here so that `--help` imports no command."""


@contextmanager
def _paused_collector() -> Generator[None]:
    """Collect no garbage in the block: imports make none, and its search takes 15 ms."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class LazyGroup(click.Group):
    """A group that imports a command only when it runs."""

    def __init__(
        self,
        name: str,
        *,
        lazy: Mapping[str, LazyCommand],
        help: str,  # noqa: A002 - click's name
        params: Sequence[click.Parameter] = (),
        context_settings: MutableMapping[str, Any] | None = None,
    ) -> None:
        """Offer the commands `lazy`."""
        super().__init__(
            name,
            help=help,
            no_args_is_help=True,
            params=[*params],
            context_settings=context_settings,
        )
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the list."""
        del ctx
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        del ctx
        found = self._lazy.get(cmd_name)
        if found is None:
            return None
        with _paused_collector():
            command = getattr(import_module(found.module), found.attribute)
        assert isinstance(command, click.Command), f"{found} is not a command"
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name; suggest names for an unknown command."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            name = error.command_name
            raise click.exceptions.NoSuchCommand(name, possibilities=self._lazy, ctx=ctx) from None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin so; import no command."""
        commands = [
            CompletionItem(name, help=found.about)
            for name, found in self._lazy.items()
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, found.about) for name, found in self._lazy.items()])


class OrderedGroup(click.Group):
    """A group that lists commands in the order of definition, the one for learning them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names."""
        del ctx
        return list(self.commands)
