"""Paths of the repository that tests read."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
"""The root of the repository."""
