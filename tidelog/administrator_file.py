"""The reader of the file with an administrator, which no other user of the machine may read."""

import stat
from pathlib import Path

from tidelog.wire.errors import ConfigError
from tidelog.wire.security.administrator_file import NewAdministrator, parse_administrator

_BYTES_MAX = 16 << 10


def read_administrator(path: str) -> NewAdministrator:
    """Return the administrator in a file of the form of `wire.security.administrator_file`.

    Raises:
        ConfigError: The file cannot be read, others may read it, or it is not of this form.
    """
    try:
        with Path(path).open("rb") as file:
            mode = Path(path).stat().st_mode
            content = file.read(_BYTES_MAX)
            text = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"cannot read the administrator file {path}: {reason}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            f"the administrator file {path} has mode {stat.S_IMODE(mode):o}, so that others may"
            f" read its secret; run: chmod 600 {path}"
        )
    return parse_administrator(text, file=path)
