"""Settings of connections from arguments, environment and profile, in this order of precedence.

Pure: files and variables are read through `Sources`. A profile is a table of `profiles.toml`:

    [prod]
    brokers = "broker-1:8433,broker-2:8433"
    user = "alice"
    password_file = "~/.config/tidelog/alice-password"
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple, Protocol, cast, final

from tidelog.client.config import ClientConfig, TokenSource
from tidelog.wire.config.unknown_names import unknown_setting
from tidelog.wire.errors import ConfigError

PROFILES_FILE: Final = "profiles.toml"
PREFIX: Final = "TIDELOG_"
_CREDENTIALS: Final = ("user", "password", "password_file", "token", "token_file")
_SECRET: Final = ("password", "token")
_TLS: Final = "tls_"
"""Beginning of the names of the settings of TLS."""


class Sources(Protocol):
    """Variables and files; see `wire.env.real.user_files.UserFiles`."""

    @property
    def environment(self) -> Mapping[str, str]:
        """All variables."""
        ...

    @property
    def configuration_directory(self) -> str:
        """The directory of the user's own settings of tidelog."""
        ...

    def read(self, path: str, *, is_private: bool = False) -> str:
        """Return the text of a file.

        Raises:
            ConfigError: The file cannot be read, or others can read it and must not.
        """
        ...


class ConnectionSettings(NamedTuple):
    """Where to connect, and as what."""

    brokers: str | None
    """Addresses with commas; `None` if neither environment nor profile name some."""
    config: ClientConfig


@final
@dataclass(frozen=True, slots=True)
class _Layer:
    """The settings of one place."""

    name: str
    """For errors."""
    values: Mapping[str, str | TokenSource] = field(repr=False)


def connection_settings(
    config: ClientConfig, sources: Sources, *, profile: str | None = None
) -> ConnectionSettings:
    """Return `config` with what environment and profile add to it.

    Each setting comes from the first place that has it: `config`, the environment, the profile. The
    credentials of a lower place do not complete those of a higher one for another user.

    Args:
        config: The arguments; a setting of credentials or TLS that is `None` counts as not given.
        sources: Variables and files.
        profile: Name of the profile; by default that of `TIDELOG_PROFILE`, or none.

    Raises:
        ConfigError: A file cannot be used, there is no such profile, or a setting is not legal.
    """
    environment = _of_environment(sources.environment)
    wanted = profile or sources.environment.get(PREFIX + "PROFILE") or ""
    layers = [_of_config(config), environment]
    if wanted:
        layers.append(_of_profile(wanted, sources))
    brokers = next((each.values["brokers"] for each in layers if "brokers" in each.values), None)
    changes: dict[str, Any] = {
        **_credentials(layers, sources),
        **_tls(layers, config),
    }
    try:
        found = replace(config, **changes)
    except ConfigError as error:
        names = [each.name for each in layers[1:] if each.values]
        origin = f" (with {' and '.join(names)})" if names else ""
        raise ConfigError(f"{error}{origin}") from error
    return ConnectionSettings(cast("str | None", brokers), found)


def _tls_names() -> list[str]:
    return [each.name for each in fields(ClientConfig) if each.name.startswith(_TLS)]


def _of_config(config: ClientConfig) -> _Layer:
    names = ("user", "password", "token", *_tls_names())
    values = {name: getattr(config, name) for name in names}
    return _Layer("arguments", {name: value for name, value in values.items() if value is not None})


def _of_environment(environment: Mapping[str, str]) -> _Layer:
    names = {f"{PREFIX}{each.upper()}": each for each in (*_CREDENTIALS, *_tls_names())}
    names[PREFIX + "BROKER"] = "brokers"
    found = {name: environment.get(variable) for variable, name in names.items()}
    return _Layer(
        "TIDELOG_* in the environment", {name: value for name, value in found.items() if value}
    )


def _of_profile(name: str, sources: Sources) -> _Layer:
    path = f"{sources.configuration_directory}/{PROFILES_FILE}"
    text = sources.read(path, is_private=True)
    import tomllib  # noqa: PLC0415  (most programs have no profile)

    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # Its text may have a part of the file.
        raise ConfigError(f"{path} is no TOML file; correct it") from error
    table = tables.get(name)
    if not isinstance(table, dict):
        known = ", ".join(key for key, value in tables.items() if isinstance(value, dict))
        raise ConfigError(
            f"{path} has no profile {name!r}; it has {known or 'none'}: add a table [{name}]"
        )
    known_names = ["brokers", *_CREDENTIALS, *_tls_names()]
    values: dict[str, str | TokenSource] = {}
    for key, value in cast("dict[str, object]", table).items():
        if key not in known_names:
            raise ConfigError(unknown_setting(key, known_names, of=f"profile {name} of {path}"))
        if not isinstance(value, str):
            raise ConfigError(f"{key} of profile {name} in {path} must be a text in quotes")
        values[key] = value
    return _Layer(f"profile {name} of {path}", values)


def _credentials(layers: Sequence[_Layer], sources: Sources) -> dict[str, object]:
    """Return user and password, or the token, of the first place that decides."""
    user = password = None
    for layer in layers:
        _check_once(layer)
        named = cast("str | None", layer.values.get("user"))
        token = _token_of(layer, sources)
        if user is not None and named not in (None, user):
            continue  # Another identity than the one that a higher place names.
        if token is not None:
            if user is None and password is None:
                return {"user": None, "password": None, "token": token}
            continue
        user = user or named
        password = password or _password_of(layer, sources)
    if user is None and password is not None:
        raise ConfigError("there is a password and no user; set user or TIDELOG_USER")
    return {} if user is None else {"user": user, "password": password}


def _check_once(layer: _Layer) -> None:
    for name in _SECRET:
        if name in layer.values and f"{name}_file" in layer.values:
            raise ConfigError(f"{layer.name}: {name} and {name}_file exclude each other")
    if {"password", "password_file"} & layer.values.keys() and (
        {"token", "token_file"} & layer.values.keys()
    ):
        raise ConfigError(f"{layer.name}: a password and a token exclude each other; keep one")


def _token_of(layer: _Layer, sources: Sources) -> str | TokenSource | None:
    path = layer.values.get("token_file")
    if path is None:
        return layer.values.get("token")
    return _reader(cast("str", path), sources)


def _reader(path: str, sources: Sources) -> TokenSource:
    """Return a source that reads a file again for each login: its token may be replaced."""

    def read() -> str:
        return sources.read(path).strip()

    read()  # A missing file is told at the start.
    return read


def _password_of(layer: _Layer, sources: Sources) -> str | None:
    path = layer.values.get("password_file")
    if path is None:
        return cast("str | None", layer.values.get("password"))
    return sources.read(cast("str", path)).rstrip("\r\n")


def _tls(layers: Sequence[_Layer], config: ClientConfig) -> dict[str, object]:
    return {
        name: next(each.values[name] for each in layers if name in each.values)
        for name in _tls_names()
        if getattr(config, name) is None and any(name in each.values for each in layers)
    }
