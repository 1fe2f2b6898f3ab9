"""What `tidelog serve --print-config` prints: each setting and its source."""

from dataclasses import fields
from typing import cast

from tidelog.broker.config.broker_config import ResolvedConfig
from tidelog.cli.output.tables import print_json, print_table


def print_config(resolved: ResolvedConfig, *, as_json: bool) -> None:
    """Print the settings in force, and where each comes from."""
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
