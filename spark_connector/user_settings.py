"""Credentials of sources and sinks from the driver's environment and profiles.

Shell: reads variables and files of the driver, where Spark plans. Tasks get the result in their
readers and writers, and read nothing of the executor's machine but the files of TLS.
"""

from collections.abc import Mapping
from typing import Final

from tidelog.client.config import ClientConfig
from tidelog.client.security.settings import Sources, connection_settings
from tidelog.spark_connector.kafka_names import EQUIVALENTS
from tidelog.spark_connector.options import PROFILE, SERVERS, SETTING_NAMES
from tidelog.wire.env.real.user_files import UserFiles
from tidelog.wire.errors import ConfigError

_NO_VALUE: Final = "must not be empty; leave it out instead"


def with_user_settings(raw: Mapping[str, str], sources: Sources | None = None) -> Mapping[str, str]:
    """Return options of a source or sink with what environment and profile add to them.

    Raises:
        ConfigError: A file cannot be used, or a setting is not legal.
    """
    by_lower = {name.lower(): value for name, value in raw.items()}
    given: dict[str, str] = {}
    for option, setting in SETTING_NAMES.items():
        value = by_lower.get(option)
        if value is not None:
            if not value:
                raise ConfigError(f"{option} {_NO_VALUE}")
            given[setting] = value
    brokers, found = connection_settings(
        ClientConfig(**given),  # type: ignore[arg-type]  # their names are fields, of texts
        UserFiles() if sources is None else sources,
        profile=by_lower.get(PROFILE),
    )
    found.require_password()
    added: dict[str, str] = {}
    for option, setting in SETTING_NAMES.items():
        setting_value: object = getattr(found, setting)
        if callable(setting_value):  # A file: its token is read when Spark plans.
            setting_value = setting_value()
        if isinstance(setting_value, str):
            added[option] = setting_value
    names_brokers = any(EQUIVALENTS.get(name, name) == SERVERS for name in by_lower)
    if brokers is not None and not names_brokers:
        added[SERVERS] = brokers
    kept = {name: value for name, value in raw.items() if name.lower() not in added}
    return {**kept, **added}
