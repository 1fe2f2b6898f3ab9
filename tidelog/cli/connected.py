"""Commands that connect to brokers, with one option `--broker` at any place of the line.

`tidelog -b host:9 topic list`, `tidelog topic -b host:9 list` and `tidelog topic list -b host:9`
are the same command. The innermost address wins, and `TIDELOG_BROKER` is below all of them.
"""

import os
from typing import Any, Final, TypedDict, final

import click

from tidelog.cli.lazy_group import OrderedGroup
from tidelog.cli.usage import WrongUse, first_of

_VARIABLE: Final = "TIDELOG_BROKER"
_PROFILE_VARIABLE: Final = "TIDELOG_PROFILE"
_DEFAULT: Final = "127.0.0.1:8433"
_KEY: Final = "tidelog.broker"
"""Key of the address in the data that the contexts of all levels share."""
_PROFILE_KEY: Final = "tidelog.profile"
"""The same for the name of the profile."""


def _keep(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Keep an address for this level and the levels inside it."""
    del param
    if value is not None:
        # A completion must not ask another broker because this address is wrong.
        ctx.meta[_KEY] = value if ctx.resilient_parsing else _checked(value, "--broker")


def _checked(addresses: str, source: str) -> str:
    # Not at the top: `--help` needs neither the client nor msgspec.
    from tidelog.client.cluster.address import parse_addresses
    from tidelog.wire.errors import ConfigError

    try:
        parse_addresses(addresses)
    except ConfigError as error:
        raise WrongUse(f"{source}: {error}") from error
    return addresses


BROKER: Final = click.Option(
    ["-b", "--broker", "--bootstrap-server"],
    metavar="HOST:PORT",
    expose_value=False,
    callback=_keep,
    help="Connect to this broker; separate several by commas."
    f"  [env var: {_VARIABLE}; default: {_DEFAULT}]",
)


class TlsSettings(TypedDict):
    """The settings of TLS of a client; see `ClientConfig`."""

    tls_ca: str | None
    tls_certificate: str | None
    tls_key: str | None


_TLS_HELP: Final = {
    "tls_ca": "Use TLS, and trust the CAs in this file, or those of the `system`.",
    "tls_certificate": "Prove the user of this certificate.",
    "tls_key": "Use this key of the certificate.",
}


def _keep_setting(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Keep a setting for this level and the levels inside it."""
    if value is not None:
        ctx.meta[f"tidelog.{param.name}"] = value


def _variable(name: str) -> str:
    return f"TIDELOG_{name.upper()}"


TLS_OPTIONS: Final = tuple(
    click.Option(
        [f"--{name.replace('_', '-')}", name],
        metavar="FILE",
        expose_value=False,
        callback=_keep_setting,
        help=f"{text}  [env var: {_variable(name)}]",
    )
    for name, text in _TLS_HELP.items()
)


def tls_settings() -> TlsSettings:
    """Return the settings of TLS that the line or the environment gives."""
    ctx = click.get_current_context(silent=True)
    meta = {} if ctx is None else ctx.meta

    def given(name: str) -> str | None:
        found: str | None = meta.get(f"tidelog.{name}") or os.environ.get(_variable(name))
        return found or None

    return {
        "tls_ca": given("tls_ca"),
        "tls_certificate": given("tls_certificate"),
        "tls_key": given("tls_key"),
    }


def _keep_profile(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Keep the name of a profile for this level and the levels inside it."""
    del param
    if value is not None:
        ctx.meta[_PROFILE_KEY] = value


PROFILE: Final = click.Option(
    ["--profile"],
    metavar="NAME",
    expose_value=False,
    callback=_keep_profile,
    help="Use brokers and credentials of this profile.  [env var: TIDELOG_PROFILE]",
)


def given_profile(ctx: click.Context | None = None) -> str | None:
    """Return the profile that the line has so far; `None` without one."""
    context = click.get_current_context(silent=True) if ctx is None else ctx
    found: str | None = None if context is None else context.meta.get(_PROFILE_KEY)
    return found


def given_broker(ctx: click.Context) -> str | None:
    """Return the address that the line has so far; `None` without one."""
    found: str | None = ctx.meta.get(_KEY)
    return found


def broker_address(ctx: click.Context | None = None) -> str:
    """Return the addresses for the command of `ctx`, by default the one that runs.

    Raises:
        WrongUse: `TIDELOG_BROKER` is not an address.
        ConfigError: The profile cannot be used.
    """
    context = click.get_current_context() if ctx is None else ctx
    given = given_broker(context)
    if given is not None:
        return given
    named = os.environ.get(_VARIABLE)
    if not named and (given_profile(context) or os.environ.get(_PROFILE_VARIABLE)):
        named = _of_profile(given_profile(context))
    return _checked(named or _DEFAULT, _VARIABLE)


def _of_profile(profile: str | None) -> str | None:
    """Return the addresses of a profile; `None` if it names none.

    Raises:
        ConfigError: The profile cannot be used.
    """
    # Not at the top: few commands have a profile.
    from tidelog.client.config import ClientConfig
    from tidelog.client.security.settings import connection_settings
    from tidelog.wire.env.real.user_files import UserFiles

    return connection_settings(ClientConfig(), UserFiles(), profile=profile).brokers


class Connected(click.Command):
    """A command, or a group of commands, that connects to brokers."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with the one of the address before `--help`."""
        params = super().get_params(ctx)
        end = len(params) - (self.get_help_option(ctx) is not None)
        return [*params[:end], BROKER, PROFILE, *TLS_OPTIONS, *params[end:]]


@final
class ConnectedCommand(Connected):
    """A command that connects to brokers; its errors name the next command."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401  (the result of a command)
        """Run the command.

        Raises:
            BaseException: The command failed; a note has the advice, if there is one.
        """
        try:
            return super().invoke(ctx)
        except click.ClickException:
            raise
        except BaseException as error:
            # Not at the top: only errors need the table.
            from tidelog.cli.advice import advice_for

            cause = first_of(error)
            advice = advice_for(cause, self._names(ctx))
            if advice is not None:
                cause.add_note(advice)
            raise

    def _names(self, ctx: click.Context) -> dict[str, object]:
        """Return the given arguments; the names of topics, queues and groups under their kinds."""
        kinds = {each.name: getattr(each, "kind", each.name) for each in self.params}
        return {
            str(kinds[name]): value
            for name, value in ctx.params.items()
            if name in kinds and isinstance(value, (str, int))
        }


@final
class ConnectedGroup(Connected, OrderedGroup):
    """A group of commands that connect to brokers."""

    command_class = ConnectedCommand
