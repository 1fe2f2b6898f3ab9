"""The generator of `docs/simulation-results.md`.

`python -m tests.simulation.results.page > docs/simulation-results.md` writes the page from the
files of `tests.simulation.results.records`. The defects of mutations come from the code.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tests.simulation.kinds import KINDS
from tests.simulation.mutations.mutation import Mutation
from tests.simulation.results.records import (
    MUTATIONS,
    SWARMS,
    Find,
    MutationResult,
    SwarmResult,
    newest,
    read,
)

_CELLS_IN_ROW: Final = 6
_TOTALS_HEAD: Final = (
    "kind | clean: | simulated s: | newest | mutations: | found: | missed: | open:"
)
_SWARMS_HEAD: Final = (
    "date | kind | commit | first seed: | s of faults: | clean: | simulated s: | ended by | note"
)
_MUTATIONS_HEAD: Final = "mutation | seeds | found by | faults: | measured | defect"
_Found = Mapping[tuple[str, str], MutationResult]

_INTRODUCTION = """\
# Results of the simulator

`make generate` writes this page from `tests/simulation/results/`; a test fails while it is stale.

This page tells maintainers how much the simulator ran, on which commit, and which mutations it
finds. [simulation.md](simulation.md) describes the method, and
[simulation-findings.md](simulation-findings.md) lists the defects that runs have found.
`make swarm RECORD=1` and `make mutants RECORD=1` add results.

- [Totals](#totals)
- [Swarms](#swarms)
- [Counts and probes](#counts-and-probes)
- [Mutations](#mutations)
"""

_TOTALS = """
## Totals

Clean runs of all swarms; a seed that ran on two states of the code counts twice. Simulated seconds
are a lower bound, because some swarms did not record them. Open mutations are those without a
recorded result; [raft.md](raft.md#mutations) has an older table of `raft`.

"""

_SWARMS = """
## Swarms

A swarm runs consecutive seeds, and ends with its first failure. An empty cell means that the value
is unknown; `three_brokers`, `counts`, `transactions`, `processing`, `groups`, `metadata` and `isr`
draw no duration of faults. "Up to" a commit means several states of the code, and `+` uncommitted
changes.
Notes and most texts about the end of a swarm are by hand. The newest is first.

"""

_COUNTS = """
## Counts and probes

The newest swarm of each kind that has them. A probe is a state that a good swarm reaches; its
number is that of runs, with the rarest probe first.
"""

_MUTATIONS = """
## Mutations

The newest result of each mutation: the seeds until a checker failed, that checker, and the faults
that are left in the shrunk plan. The code has changed since; other seeds may find a mutation now.
[Remarks](simulation-findings.md#remarks-on-mutations) tell how older results were measured.
"""


def describe(swarms: Sequence[SwarmResult], mutations: Iterable[MutationResult]) -> str:
    """Return the page."""
    found = newest(mutations)
    by_day = sorted(swarms, key=lambda each: each.state.date)[::-1]
    return "".join(
        (
            _INTRODUCTION,
            _TOTALS,
            _table(_TOTALS_HEAD, (_totals(kind, by_day, found) for kind in KINDS)),
            _SWARMS,
            _table(_SWARMS_HEAD, map(_swarm_row, by_day)),
            _COUNTS,
            *(_counts_of(kind, by_day) for kind in KINDS),
            _MUTATIONS,
            *(_mutations_of(kind, found) for kind in KINDS),
        )
    )


def _totals(kind: str, by_day: Sequence[SwarmResult], found: _Found) -> Iterable[str]:
    swarms = [each for each in by_day if each.kind == kind]
    names = [each.name for each in KINDS[kind].mutations]
    known = [found[kind, name] for name in names if (kind, name) in found]
    found_count = sum(bool(each.found_by) and not each.problem for each in known)
    numbers = (len(names), found_count, len(known) - found_count, len(names) - len(known))
    return (
        f"`{kind}`",
        _number(sum(each.clean or 0 for each in swarms)),
        _number(sum(each.simulated_s or 0 for each in swarms) or None),
        str(swarms[0].state) if swarms else "",
        *map(_number, numbers),
    )


def _swarm_row(swarm: SwarmResult) -> Iterable[str]:
    find = swarm.find or Find()
    seed_and_checker = _joined(" ", find.seed, f"`{find.checker}`" if find.checker else "")
    return (
        swarm.state.date,
        f"`{swarm.kind}`",
        swarm.state.commit,
        "" if swarm.first is None else str(swarm.first),
        _number(swarm.seconds),
        _number(swarm.clean),
        _number(swarm.simulated_s),
        _joined(": ", seed_and_checker, find.about),
        swarm.note,
    )


def _counts_of(kind: str, by_day: Sequence[SwarmResult]) -> str:
    counted = [each for each in by_day if each.kind == kind and (each.counts or each.probes)]
    if not counted:
        return ""
    rarest = sorted(counted[0].probes.items(), key=lambda each: each[1])
    tables = _grid("count", counted[0].counts.items()) + _grid("probe", rarest)
    return f"\n### {kind}, {counted[0].state}\n{tables}"


def _grid(name: str, items: Iterable[tuple[str, int]]) -> str:
    """Return a table with several pairs of a name and a number in each row, if there are any."""
    cells = [cell for what, number in items for cell in (what, _number(number))]
    cells += [""] * (-len(cells) % _CELLS_IN_ROW)
    starts = range(0, len(cells), _CELLS_IN_ROW)
    head = " | ".join([name, ":"] * (_CELLS_IN_ROW // 2))
    return "\n" + _table(head, (cells[at : at + _CELLS_IN_ROW] for at in starts)) if cells else ""


def _mutations_of(kind: str, found: _Found) -> str:
    known = [
        (found[kind, mutation.name], mutation)
        for mutation in KINDS[kind].mutations
        if (kind, mutation.name) in found
    ]
    if not known:
        return ""
    rows = (_mutation_row(*each) for each in known)
    return f"\n### Mutations of {kind}\n\n" + _table(_MUTATIONS_HEAD, rows)


def _mutation_row(result: MutationResult, mutation: Mutation) -> Iterable[str]:
    is_usual = result.seconds in {None, KINDS[result.kind].mutation_seconds}
    duration = "" if is_usual else f"in runs of {_number(result.seconds)} s"
    seeds = _number(result.seeds) if result.found_by else f"**not in {_number(result.seeds)}**"
    doubt = f"**{result.problem}**" if result.found_by and result.problem else ""
    return (
        result.name,
        _joined(" ", seeds, result.note, duration, doubt),
        result.found_by,
        _number(result.faults),
        str(result.state),
        mutation.about,
    )


def _joined(separator: str, *parts: str) -> str:
    return separator.join(filter(None, parts))


def _number(number: float | None) -> str:
    return "" if number is None else f"{number:,.12g}"


def _table(head: str, rows: Iterable[Iterable[str]]) -> str:
    """Return a table; a heading that ends in a colon is that of a column of numbers."""
    heads = head.split(" | ")
    lines = [[each.rstrip(":") for each in heads], *rows]
    text = ["".join(f"| {cell} " if cell else "| " for cell in line) + "|" for line in lines]
    text.insert(1, "|" + "|".join("---:" if each.endswith(":") else "---" for each in heads) + "|")
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    sys.stdout.write(describe(read(SWARMS, SwarmResult), read(MUTATIONS, MutationResult)))
