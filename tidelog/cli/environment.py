"""Variables `TIDELOG_*` of the environment: those that commands read, and mistyped ones.

Pure: the environment is passed in. A mistyped variable would otherwise have no effect, in silence.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tidelog.cli.usage import WrongUse

_PREFIX: Final = "TIDELOG_"
_OF_COMMANDS: Final = (
    *("BROKER", "CONFIG", "OUTBOX_DSN", "PROFILE"),
    *("USER", "PASSWORD", "PASSWORD_FILE", "TOKEN", "TOKEN_FILE"),
    *("TLS_CA", "TLS_CERTIFICATE", "TLS_KEY"),
)
"""Variables besides those of the settings of a broker, which `tidelog serve` reads."""

_LIKENESS_MIN: Final = 0.84
"""Similarity to a typing error; scripts may have variables such as `TIDELOG_BROKER_URL`."""

_OF_KUBERNETES: Final = re.compile(
    r"""(?: [A-Z0-9_]+_ )?                             # of a service tidelog, tidelog-broker
        (?: SERVICE_HOST | SERVICE_PORT (?: _[A-Z0-9_]+ )?
          | PORT_[0-9]+_(?: TCP | UDP | SCTP ) (?: _(?: PROTO | PORT | ADDR ) )? )""",
    re.VERBOSE,
)
_PORT_OF_KUBERNETES: Final = re.compile(r"(tcp|udp|sctp)://.*")


def check_environment(environment: Mapping[str, str]) -> None:
    """Raise if a variable is a typing error of one that tidelog reads.

    Other variables that begin with `TIDELOG_` belong to other programs: scripts and tests have some
    of their own, and Kubernetes sets some for a service named tidelog.

    Raises:
        WrongUse: A variable is mistyped; the line names the right one.
    """
    for variable in _unknown(environment):
        found = _nearest(variable.removeprefix(_PREFIX))
        if found is not None:
            raise WrongUse(f"there is no variable {variable}; did you mean {_PREFIX}{found}?")


def _unknown(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the variables that no command reads, without those of Kubernetes."""
    for variable, value in environment.items():
        name = variable.removeprefix(_PREFIX)
        if name == variable or name in _OF_COMMANDS or _OF_KUBERNETES.fullmatch(name):
            continue
        if name.endswith("PORT") and _PORT_OF_KUBERNETES.fullmatch(value):
            continue
        yield variable


def _nearest(name: str) -> str | None:
    """Return the variable that is meant; `None` if the name is right, or far from all."""
    # Not at the top: few environments have variables for which the settings are needed.
    from tidelog.broker.config.broker_config import FIELDS
    from tidelog.wire.config.unknown_names import nearest_name

    known = [*(each.lower() for each in _OF_COMMANDS), *FIELDS]
    if name in (each.upper() for each in known):
        return None
    found = nearest_name(name.lower(), known, likeness_min=_LIKENESS_MIN)
    return None if found is None else found.upper()
