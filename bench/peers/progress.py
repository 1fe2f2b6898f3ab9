"""How long it still takes. Pure."""

from typing import Final, final

_SHARE_MIN: Final = 0.02
"""Of the work, before what was measured says more than the estimate."""


@final
class Progress:
    """Work whose parts were estimated beforehand: the estimate of the rest follows the pace."""

    def __init__(self, seconds: float) -> None:
        """Of so many estimated seconds."""
        self._total = max(seconds, 1e-9)
        self._done = 0.0

    def did(self, seconds: float) -> None:
        """Say that a part is done, or given up, by its estimate."""
        self._done = min(self._done + seconds, self._total)

    def left(self, elapsed: float) -> float:
        """Return seconds until all is done, when so many have passed."""
        rest = self._total - self._done
        if self._done < self._total * _SHARE_MIN:
            return rest
        return rest * elapsed / self._done

    def text(self, elapsed: float) -> str:
        """Return it for whoever waits."""
        percent = self._done / self._total * 100
        return f"{percent:.0f} %, about {self.left(elapsed) / 60:.0f} minutes left"
