"""Estimate of the remaining time. Pure."""

from typing import Final, final

_SHARE_MIN: Final = 0.02
"""Share of the work below which the estimate outweighs the measured pace."""


@final
class Progress:
    """Work with estimated parts; the measured pace corrects the estimate of the rest."""

    def __init__(self, seconds: float) -> None:
        """Begin work of `seconds` by estimate."""
        self._total = max(seconds, 1e-9)
        self._done = 0.0

    def did(self, seconds: float) -> None:
        """Count a part as done or skipped, by its estimate."""
        self._done = min(self._done + seconds, self._total)

    def left(self, elapsed: float) -> float:
        """Return the remaining seconds after `elapsed` seconds."""
        rest = self._total - self._done
        if self._done < self._total * _SHARE_MIN:
            return rest
        return rest * elapsed / self._done

    def text(self, elapsed: float) -> str:
        """Return the progress as a line."""
        percent = self._done / self._total * 100
        return f"{percent:.0f} %, about {self.left(elapsed) / 60:.0f} minutes left"
