"""Settings of a consumer group: names, parsers, ranges (Kafka: configs of the resource GROUP).

Pure: no clock, no I/O. Coordinator and clients share them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from tidelog.wire.config.settings import (
    NONE,
    Setting,
    parse_bounded_count,
    parse_bounded_duration,
    parse_or_none,
    parse_owner,
)
from tidelog.wire.config.unknown_names import unknown_setting
from tidelog.wire.errors import InvalidConfigError

_LONGEST_MS: Final = 36_500 * 86_400_000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The values in force for one group; `GROUP_SETTINGS` says what each setting means."""

    owner: str | None = None
    alert_lag_ms: int | None = None
    alert_lag_records: int | None = None


GROUP_SETTINGS: Final = {
    setting.name: setting
    for setting in (
        Setting(
            "alert_lag_ms",
            parse_or_none(parse_bounded_duration(low=1000, high=_LONGEST_MS)),
            NONE,
            "1s or more, none",
            "Lag in time, in the worst partition, above which the alert `GroupLag` fires.",
        ),
        Setting(
            "alert_lag_records",
            parse_or_none(parse_bounded_count(low=0, high=10**12)),
            NONE,
            "0 or more, none",
            "Lag in records, over all partitions, above which the alert `GroupLag` fires.",
        ),
        Setting(
            "owner",
            parse_owner,
            NONE,
            "none, up to 256 bytes",
            "Owner of the group, such as a team or an address; its alerts name it.",
        ),
    )
}
"""The settings of a group by name, sorted."""


def check_group_setting_name(name: str) -> None:
    """Check that a group has a setting of this name.

    Raises:
        InvalidConfigError: The setting is unknown; the message suggests one or lists all.
    """
    if name not in GROUP_SETTINGS:
        raise InvalidConfigError(unknown_setting(name, GROUP_SETTINGS, of="group"))


def effective_group_settings(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the effective value of every setting of a group, as text."""
    return {name: overrides.get(name, each.default) for name, each in GROUP_SETTINGS.items()}


def group_settings(overrides: Mapping[str, str]) -> GroupSettings:
    """Return the effective settings under these overrides.

    Raises:
        InvalidConfigError: A setting is unknown, or a value is not legal.
    """
    for name in overrides:
        check_group_setting_name(name)
    values: dict[str, Any] = {
        name: GROUP_SETTINGS[name].parse(name, text) for name, text in overrides.items()
    }
    return GroupSettings(**values)
