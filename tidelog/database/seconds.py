"""Ages that an application gives as a text or as seconds.

Pure: no clock, no I/O.
"""

from tidelog.wire.config.durations import A_DURATION, duration_ms
from tidelog.wire.errors import ConfigError


def seconds_of(name: str, age: str | float) -> float:
    """Return the seconds of an age, such as `7d`.

    Raises:
        ConfigError: It is no duration, or negative; the message names the setting.
    """
    found = age
    if isinstance(found, str):
        found_ms = duration_ms(found, bare_unit_ms=None)
        found = -1.0 if found_ms is None else found_ms / 1000
    if not found >= 0:
        raise ConfigError(f"{name} is {age!r}: it must be {A_DURATION}, or a number of seconds")
    return found
