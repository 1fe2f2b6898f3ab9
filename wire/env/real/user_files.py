"""The environment and the files of the user that runs a program.

Shell: reads variables and files. `client.security.settings` decides what they mean.
"""

import os
import stat
from collections.abc import Mapping
from typing import Final, final

from tidelog.wire.errors import ConfigError

_FILE_BYTES_MAX: Final = 1 << 20


@final
class UserFiles:
    """Variables and files, read on request."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """Use `environment`, by default that of the process."""
        self.environment: Mapping[str, str] = os.environ if environment is None else environment
        """All variables."""

    @property
    def configuration_directory(self) -> str:
        """The directory of the user's own settings of tidelog."""
        base = self.environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111
        return os.path.join(base, "tidelog")  # noqa: PTH118

    def read(self, path: str, *, is_private: bool = False) -> str:
        """Return the text of a file.

        Args:
            path: The file; `~` is the user's home.
            is_private: Whether a file is refused that other users can read.

        Raises:
            ConfigError: The file cannot be read, or others can read it.
        """
        try:
            with open(os.path.expanduser(path), encoding="utf-8") as file:  # noqa: PTH123, PTH111
                mode = os.fstat(file.fileno()).st_mode
                if is_private and stat.S_ISREG(mode) and mode & 0o077:
                    raise ConfigError(
                        f"other users can read {path}, which has credentials; run"
                        f" `chmod 600 {path}`"
                    )
                return file.read(_FILE_BYTES_MAX)
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"cannot read {path}: it is no text in UTF-8") from error
