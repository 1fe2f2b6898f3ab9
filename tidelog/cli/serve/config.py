"""`tidelog config`: what a broker would be told, and by whom."""

import os
from dataclasses import fields
from typing import cast

import click

from tidelog.broker.config.broker_config import resolve_config
from tidelog.cli.options import examples, json_option, server_options
from tidelog.cli.output.tables import print_json, print_table


@click.group()
def config() -> None:
    """Show the settings of a broker."""


@config.command(
    short_help="Show what `tidelog serve` would be told.",
    epilog=examples("tidelog config show", "tidelog config show --config tidelog.toml --json"),
)
@server_options
@json_option
def show(config_file: str | None, as_json: bool, **flags: object) -> None:
    """Show the settings that `tidelog serve` would have here, and where each comes from.

    A flag of `tidelog serve` beats the environment (TIDELOG_DATA_DIR sets data_dir, and so on),
    which beats the file of --config, which beats the default.
    """
    resolved = resolve_config(file=config_file, environment=os.environ, flags=flags)
    names = [item.name for item in fields(resolved.config)]
    values = {name: getattr(resolved.config, name) for name in names}
    if as_json:
        print_json(
            {
                name: {"value": value, "source": resolved.sources[name]}
                for name, value in values.items()
            }
        )
        return
    rows = [(name, _as_in_file(value), resolved.sources[name]) for name, value in values.items()]
    print_table(["SETTING", "VALUE", "SOURCE"], rows)


def _as_in_file(value: object) -> str:
    """Return a value as it would stand in the file."""
    if isinstance(value, dict):
        table = cast("dict[str, str]", value)
        return ", ".join(f'{name} = "{item}"' for name, item in table.items()) or "{}"
    return f'"{value}"' if isinstance(value, str) else str(value)
