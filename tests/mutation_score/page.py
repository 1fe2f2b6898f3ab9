"""The generator of `docs/mutation-score.md`.

`python -m tests.mutation_score.page > docs/mutation-score.md` writes the page from the files of
`tests.mutation_score.records`.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Final

from tests.mutation_score.records import (
    Judgement,
    Score,
    Survivor,
    key_of,
    newest,
    read_judgements,
    read_scores,
)

_INTRODUCTION: Final = """\
# Mutation score

`make generate` writes this page from `tests/mutation_score/`; a test fails while it is stale.

This page tells maintainers how many mutations of the pure cores the tests detect. The mutations are
drawn at random from the operators of [cosmic-ray](https://cosmic-ray.readthedocs.io), so that no
author of a test has chosen them. `make mutation-score ROOM=isr SEED=1 SAMPLE=60` adds a result.
[Decision 0027](decisions/0027-mutation-score.md) describes the method.

"""

_SCORES: Final = """\
## Scores

The newest result of each room and seed. *First* is the share of the first run, before survivors
led to new tests. A unit test of the room kills a mutation, or else a simulated run. Places are
parts of the code that operators can change; a sample has one mutation for each of its places.
Equivalent mutations survive every test and count as not killed.

"""

_SURVIVORS: Final = """
## Survivors

Mutations that neither a unit test nor a simulated run has killed, with the reason why a mutation is
equivalent. Line numbers are those of the commit of the sample.
"""

_RUNS: Final = """
## All runs

The newest is first. *Again* is a run of the survivors of the row below with new tests; its counts
are those of the whole sample. Mutations that used up their CPU time, such as endless loops, are
among those that unit tests killed. A run without simulation leaves that column empty.

"""

_SCORES_HEAD: Final = "room | seed: | places: | sample: | first: | killed: | equivalent: | open:"
_RUNS_HEAD: Final = (
    "date | commit | room | seed: | sample: | by tests: | timed out: | by simulation: |"
    " survived: | "
)


def describe(scores: Sequence[Score], judgements: Iterable[Judgement]) -> str:
    """Return the page."""
    reasons = {key_of(each): each.reason for each in judgements}
    last = newest(scores)
    first = newest(scores[::-1])
    total = [_total_row([first[key] for key in last], list(last.values()), reasons)]
    rows = [*(_score_row(first[key], each, reasons) for key, each in last.items()), *total]
    return "".join(
        (
            _INTRODUCTION,
            _SCORES,
            _table(_SCORES_HEAD, rows),
            _SURVIVORS,
            *(_survivors_of(each, reasons) for each in last.values() if each.survivors),
            _RUNS,
            _table(_RUNS_HEAD, map(_run_row, scores[::-1])),
        )
    )


def _score_row(first: Score, last: Score, reasons: dict[tuple[str, str, str], str]) -> list[str]:
    equivalent = sum(key_of(each) in reasons for each in last.survivors)
    return [
        f"`{last.room}`",
        str(last.seed),
        f"{last.places:,}",
        str(last.sample),
        _share(first.killed, first.sample),
        _share(last.killed, last.sample),
        str(equivalent),
        str(len(last.survivors) - equivalent),
    ]


def _total_row(
    first: Sequence[Score], last: Sequence[Score], reasons: dict[tuple[str, str, str], str]
) -> list[str]:
    survivors = [each for score in last for each in score.survivors]
    equivalent = sum(key_of(each) in reasons for each in survivors)
    sample = sum(each.sample for each in last)
    return [
        "all",
        "",
        f"{sum({each.room: each.places for each in last}.values()):,}",
        str(sample),
        _share(sum(each.killed for each in first), sum(each.sample for each in first)),
        _share(sum(each.killed for each in last), sample),
        str(equivalent),
        str(len(survivors) - equivalent),
    ]


def _survivors_of(score: Score, reasons: dict[tuple[str, str, str], str]) -> str:
    rows = (_survivor_row(each, reasons.get(key_of(each), "**open**")) for each in score.survivors)
    title = f"\n### {score.room}, seed {score.seed}, {score.date} {score.commit}\n\n"
    return title + _table("place | code | mutation | equivalent because", rows)


def _survivor_row(survivor: Survivor, reason: str) -> list[str]:
    place = f"{survivor.file}:{survivor.line}"
    return [place, _code(survivor.before), _code(survivor.after), reason]


def _run_row(score: Score) -> list[str]:
    return [
        score.date,
        score.commit,
        f"`{score.room}`",
        str(score.seed),
        str(score.sample),
        str(score.by_tests),
        str(score.timed_out),
        str(score.by_simulation) if score.has_simulation else "",
        str(len(score.survivors)),
        "again" if score.again else "",
    ]


def _share(count: int, total: int) -> str:
    return f"{count} ({100 * count / total:.1f} %)" if total else ""


def _code(text: str) -> str:
    escaped = text.replace("|", "\\|")
    return f"`` {escaped} ``" if "`" in escaped else f"`{escaped}`"


def _table(head: str, rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a heading that ends in a colon is that of a column of numbers."""
    heads = [each.strip() for each in head.split(" |")]
    lines = [[each.rstrip(":") for each in heads], *rows]
    text = ["".join(f"| {cell} " if cell else "| " for cell in line) + "|" for line in lines]
    text.insert(1, "|" + "|".join("---:" if each.endswith(":") else "---" for each in heads) + "|")
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    sys.stdout.write(describe(read_scores(), read_judgements()))
