"""Schedule of fetches of keys: by their age, for an unknown key, and after a failure.

Pure: time is passed in. A stranger may send tokens with any key id, so these cause no more than one
fetch in `UNKNOWN_KEY_S`.
"""

from typing import Final, final

REFRESH_S: Final = 300.0
"""Age of the keys at which they are fetched again."""
UNKNOWN_KEY_S: Final = 30.0
"""Least time between two fetches if a token has an unknown key."""
_FIRST_BACKOFF_S: Final = 1.0
_BACKOFF_MAX_S: Final = 60.0


@final
class RefreshSchedule:
    """Decides about the next fetch."""

    def __init__(self) -> None:
        """Begin with a fetch at once."""
        self._attempted_at_s: float | None = None
        self._failure_count = 0
        self._is_wanted = False

    @property
    def failure_count(self) -> int:
        """Failures since the last success."""
        return self._failure_count

    def due_at_s(self) -> float:
        """Return the time of the next fetch; in the past for at once."""
        if self._attempted_at_s is None:
            return 0.0
        if self._failure_count:
            doubled_s: float = _FIRST_BACKOFF_S * 2.0 ** min(self._failure_count - 1, 16)
            return self._attempted_at_s + min(doubled_s, _BACKOFF_MAX_S)
        return self._attempted_at_s + (UNKNOWN_KEY_S if self._is_wanted else REFRESH_S)

    def want(self, now_s: float) -> bool:
        """Note that a token has an unknown key; return whether a fetch is due at once."""
        self._is_wanted = True
        return self.due_at_s() <= now_s

    def ended(self, now_s: float, *, is_success: bool) -> None:
        """Note the end of a fetch."""
        self._attempted_at_s = now_s
        self._failure_count = 0 if is_success else self._failure_count + 1
        if is_success:
            self._is_wanted = False
