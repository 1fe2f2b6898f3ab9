"""The addresses of a broker that other machines reach, and the protection that they need.

Pure: no I/O; a name is not resolved, so that only `localhost` counts as this machine.
"""

from collections.abc import Mapping
from typing import Final

from tidelog.broker.config.broker_config import BrokerConfig, parse_address
from tidelog.wire.errors import ConfigError
from tidelog.wire.security.loopback import is_loopback

_LOCALHOST: Final = "localhost"


def is_local(address: str) -> bool:
    """Return whether only this machine reaches a `HOST:PORT`.

    Raises:
        ConfigError: The text is no address.
    """
    host, _ = parse_address(address)
    return host.lower() == _LOCALHOST or is_loopback(host)


def exposed_addresses(config: BrokerConfig) -> Mapping[str, str]:
    """Return the addresses that other machines reach, by the name of their setting.

    `http_listen` is none of them: its pages are read-only and have no records.
    """
    addresses = {"listen": config.listen, "advertised": config.advertised}
    return {name: each for name, each in addresses.items() if each and not is_local(each)}


def open_addresses(config: BrokerConfig) -> Mapping[str, str]:
    """Return the addresses at which other machines are served without TLS or authentication.

    With `tls = accept`, a client may still come without.
    """
    is_protected = config.tls == "require" and config.authentication == "required"
    return {} if is_protected else exposed_addresses(config)


def check_exposure(config: BrokerConfig) -> None:
    """Check that a broker of `tidelog serve` is not open to other machines by accident.

    Raises:
        ConfigError: It would be; the line names both ways out.
    """
    if config.insecure_listen == "on":
        return
    for name, address in open_addresses(config).items():
        missing = [
            setting
            for setting, value, wanted in (
                ("tls = require", config.tls, "require"),
                ("authentication = required", config.authentication, "required"),
            )
            if value != wanted
        ]
        raise ConfigError(
            f"{name} is {address}, which other machines reach, without {' and '.join(missing)}:"
            " create certificates with `tidelog cluster init-tls --nodes 1=HOST,2=HOST,3=HOST`,"
            " and start with --tls DIR and TIDELOG_AUTHENTICATION=required; or serve every machine"
            ' that can connect with --insecure-listen (insecure_listen = "on")'
        )
