"""The command `tidelog completion`, which prints the completion of a shell."""

import click
from click.shell_completion import get_completion_class

from tidelog.cli.options import examples

_VARIABLE = "_TIDELOG_COMPLETE"
"""Variable by which the script of a shell asks for completions."""


@click.command(
    epilog=examples(
        "tidelog completion bash > ~/.local/share/bash-completion/completions/tidelog",
        "tidelog completion zsh > ~/.zfunc/_tidelog",
        "tidelog completion fish > ~/.config/fish/completions/tidelog.fish",
    )
)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands in a shell.

    The shell then completes commands, options, and names of topics, queues and groups; the names
    come from the broker of --broker or TIDELOG_BROKER, if it answers within 0.3 s.
    """
    found = get_completion_class(shell)
    assert found is not None, f"click knows {shell}"
    click.echo(found(ctx.find_root().command, {}, "tidelog", _VARIABLE).source())
