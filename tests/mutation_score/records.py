"""Results of mutation scores, one line of JSON each, and judgements of survivors."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, final

import msgspec

_HERE: Final = Path(__file__).parent
SCORES: Final = _HERE / "scores.jsonl"
JUDGEMENTS: Final = _HERE / "judgements.jsonl"


@final
class Survivor(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Mutant that no test and no simulated run detected."""

    file: str
    line: int
    operator: str
    before: str
    """The changed lines, without indentation."""
    after: str


@final
class Score(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Result of one sample of a room."""

    date: str
    """Day in UTC."""
    commit: str
    """Short hash, with a "+" if files differed from the commit."""
    room: str
    seed: int
    places: int
    """Number of places in the room."""
    sample: int
    """Number of mutants that were tried."""
    by_tests: int
    """Number of mutants that unit tests killed, with those that used up their CPU time."""
    timed_out: int = 0
    """Number of mutants among `by_tests` that used up their CPU time."""
    by_simulation: int = 0
    """Number of mutants that only simulated runs killed."""
    has_simulation: bool = False
    """Whether simulated runs tried the mutants that unit tests did not kill."""
    survivors: list[Survivor] = []
    again: bool = False
    """Whether only the survivors of the sample's line before were tried, with new tests."""

    @property
    def killed(self) -> int:
        """Number of killed mutants."""
        return self.by_tests + self.by_simulation


@final
class Judgement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Reason why a mutant is equivalent: no test can tell it from the code."""

    file: str
    before: str
    after: str
    reason: str


def key_of(mutant: Survivor | Judgement) -> tuple[str, str, str]:
    """Return the identity of a mutant, which a change of other lines keeps."""
    return mutant.file, mutant.before, mutant.after


def read_scores(path: Path = SCORES) -> list[Score]:
    """Return all results, in order.

    Raises:
        msgspec.MsgspecError: A line is no such result.
    """
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Score) for line in lines]


def read_judgements(path: Path = JUDGEMENTS) -> list[Judgement]:
    """Return all judgements.

    Raises:
        msgspec.MsgspecError: A line is no judgement.
    """
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Judgement) for line in lines]


def newest(scores: Iterable[Score]) -> dict[tuple[str, int], Score]:
    """Return the last result of each room and seed."""
    return {(each.room, each.seed): each for each in scores}
