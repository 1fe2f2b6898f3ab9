"""The command line of the mutation score: `python -m tests.mutation_score ROOM`.

It draws a sample of mutants of the pure cores of a room, runs the unit tests of each until one
fails, and simulated runs for those that survive. Each run adds a line to `scores.jsonl`, from which
`make generate` writes `docs/mutation-score.md`.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from time import perf_counter
from typing import Final, final

import msgspec

from tests.mutation_score.coverage_map import BUILD, CoverageMap, coverage_map
from tests.mutation_score.places import Mutant, Place, places_in, sample
from tests.mutation_score.records import (
    SCORES,
    Score,
    Survivor,
    key_of,
    newest,
    read_judgements,
    read_scores,
)
from tests.mutation_score.rooms import ROOMS, Room
from tests.mutation_score.trial import Outcome, try_simulation, try_tests
from tests.paths import ROOT

_TESTS_FACTOR: Final = 5.0
_TESTS_MIN_S: Final = 20.0
"""CPU time of the tests of a mutant: a factor of their usual time, and some for imports."""
_NOT_CODE: Final = (":!docs", ":!tests/mutation_score/*.jsonl")


def main() -> int:
    """Execute the command line; return the exit code."""
    arguments = _parse()
    room = ROOMS[arguments.room]
    before = newest(read_scores()).get((room.name, arguments.seed))
    if arguments.again and before is None:
        raise SystemExit(f"--again needs a sample of {room.name} with seed {arguments.seed}")
    state = _state()
    trials = _Trials(room, coverage_map(room), sim_seconds=arguments.sim_seconds)
    places = [
        place
        for file in room.modules
        for place in places_in(file, (ROOT / file).read_text("utf-8"))
    ]
    _say(f"{room.name}: {len(places)} places in {len(room.modules)} modules")
    if before is not None and arguments.again:
        survivors = [each for each in before.survivors if key_of(each) not in trials.equivalent]
        trials.run(_again(places, survivors), len(survivors))
    else:
        trials.run(sample(places, arguments.seed), arguments.sample)
    score = trials.score(state, arguments.seed, len(places))
    if before is not None and arguments.again:
        score = msgspec.structs.replace(
            score,
            sample=before.sample,
            by_tests=before.by_tests + score.by_tests,
            timed_out=before.timed_out + score.timed_out,
            by_simulation=before.by_simulation + score.by_simulation,
            survivors=[
                *(each for each in before.survivors if key_of(each) in trials.equivalent),
                *score.survivors,
            ],
            again=True,
        )
    with SCORES.open("ab") as file:
        file.write(msgspec.json.encode(score) + b"\n")
    _say(f"killed {score.killed} of {score.sample}")
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation_score",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("room", choices=ROOMS)
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample")
    parser.add_argument("--sample", type=int, default=60, help="number of mutants")
    parser.add_argument(
        "--sim-seconds", type=float, default=30.0, help="CPU time for each kind, 0 for none"
    )
    parser.add_argument("--again", action="store_true", help="try only survivors of this seed")
    return parser.parse_args()


@final
class _Trials:
    """Mutants and their outcomes."""

    def __init__(self, room: Room, lines: CoverageMap, *, sim_seconds: float) -> None:
        self._room = room
        self._lines = lines
        self._sim_seconds = sim_seconds
        self.equivalent = {key_of(each) for each in read_judgements()}
        self._is_simulation_clean = False
        self._by_tests = 0
        self._timed_out = 0
        self._by_simulation = 0
        self._survivors: list[Mutant] = []

    @property
    def _count(self) -> int:
        return self._by_tests + self._by_simulation + len(self._survivors)

    def run(self, mutants: Iterable[Mutant], count: int) -> None:
        """Try so many mutants, without those that cannot be imported."""
        for mutant in mutants:
            if self._count == count:
                return
            began_at = perf_counter()
            verdict = self._try(mutant)
            _say(
                f"{self._count:>3} {verdict:<11} {perf_counter() - began_at:>4.0f} s "
                f" {mutant.file}:{mutant.line} {mutant.operator}:"
                f" {mutant.before} -> {mutant.after}"
            )

    def _try(self, mutant: Mutant) -> str:
        groups = self._lines.tests_of(mutant.file, mutant.line)
        usual_s = sum(self._lines.seconds[test] for group in groups for test in group)
        outcome = try_tests(
            mutant.module,
            mutant.code,
            groups,
            cpu_s=_TESTS_FACTOR * usual_s + _TESTS_MIN_S,
            log=BUILD / f"{self._room.name}-tests-{self._count}.log",
        )
        if outcome is Outcome.STILLBORN:
            return "stillborn"
        if outcome is not Outcome.SURVIVED:
            self._by_tests += 1
            self._timed_out += outcome is Outcome.TIMED_OUT
            return "timed out" if outcome is Outcome.TIMED_OUT else "test"
        is_equivalent = (mutant.file, mutant.before, mutant.after) in self.equivalent
        if (
            not is_equivalent
            and self._sim_seconds
            and self._simulate(mutant.module, mutant.code) is not Outcome.SURVIVED
        ):
            self._by_simulation += 1
            return "simulation"
        self._survivors.append(mutant)
        return "equivalent" if is_equivalent else "SURVIVED"

    def _simulate(self, module: str, code: str) -> Outcome:
        if not self._is_simulation_clean:
            self._is_simulation_clean = True
            if self._simulate("", "") is not Outcome.SURVIVED:
                raise SystemExit(f"a run of {self._room.kinds} fails without a mutation")
        return try_simulation(
            module,
            code,
            self._room.kinds,
            cpu_s=self._sim_seconds,
            log=BUILD / f"{self._room.name}-simulation-{self._count}.log",
        )

    def score(self, state: tuple[str, str], seed: int, places: int) -> Score:
        """Return the result."""
        return Score(
            date=state[0],
            commit=state[1],
            room=self._room.name,
            seed=seed,
            places=places,
            sample=self._count,
            by_tests=self._by_tests,
            timed_out=self._timed_out,
            by_simulation=self._by_simulation,
            has_simulation=bool(self._sim_seconds),
            survivors=[
                Survivor(
                    file=each.file,
                    line=each.line,
                    operator=each.operator,
                    before=each.before,
                    after=each.after,
                )
                for each in self._survivors
            ],
        )


def _again(places: Sequence[Place], survivors: Sequence[Survivor]) -> Iterator[Mutant]:
    """Return these survivors, as mutants of the code now.

    Raises:
        SystemExit: The code of one has changed: draw the sample again.
    """
    for survivor in survivors:
        same = [
            mutant
            for place in places
            if place.file == survivor.file
            for choice in place.choices
            if choice[0] == survivor.operator
            for mutant in [place.mutant(*choice)]
            if (mutant.before, mutant.after) == (survivor.before, survivor.after)
        ]
        if not same:
            raise SystemExit(f"{survivor.file}:{survivor.line} has changed; leave out --again")
        yield min(same, key=lambda mutant: abs(mutant.line - survivor.line))


def _state() -> tuple[str, str]:
    """Return the day, and the commit with a "+" if code differs from it."""
    commit = _git("rev-parse", "--short=8", "HEAD").strip()
    is_changed = bool(_git("diff", "--name-only", "HEAD", "--", ".", *_NOT_CODE))
    return time.strftime("%Y-%m-%d", time.gmtime()), commit + "+" * is_changed


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
