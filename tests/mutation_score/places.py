"""Places of mutations, and a sample of them, by the operators of cosmic-ray.

A place is a range of source text; several operators may apply to it. A sample takes places, each
with one operator, so that an arithmetic operator with eleven replacements counts once.
"""

import ast
import difflib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, final

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from tests.paths import ROOT

if TYPE_CHECKING:
    from cosmic_ray.ast import Node

_PREFIX: Final = "core/"
_LEFT_OUT: Final = {
    "RemoveDecorator": "declarations",
    "VariableReplacer": "needs the names of variables",
    "VariableInserter": "needs the names of variables",
    "ReplaceComparisonOperator_Eq_Is": "equal for small numbers, names and enumerations",
    "ReplaceComparisonOperator_Is_Eq": "equal for small numbers, names and enumerations",
    "ReplaceComparisonOperator_NotEq_IsNot": "equal for small numbers, names and enumerations",
    "ReplaceComparisonOperator_IsNot_NotEq": "equal for small numbers, names and enumerations",
}
"""Operators that are not used, with the reason."""
_NO_PLACES: Final = frozenset({"name", "newline", "endmarker", "string", "fstring_string"})
"""Types of nodes that no operator mutates."""
_PARAMETERS: Final = frozenset({"parameters", "param", "lambdef", "argument", "arglist"})
_Range = tuple[tuple[int, int], tuple[int, int]]


@final
@dataclass(frozen=True, slots=True)
class Mutant:
    """One mutation of one module."""

    file: str
    line: int
    operator: str
    code: str
    """The whole module with the mutation."""
    before: str
    """The changed lines, without indentation."""
    after: str

    @property
    def module(self) -> str:
        """Name under which the module is imported."""
        return "tidelog." + self.file.removesuffix(".py").replace("/", ".")


@final
@dataclass(frozen=True, slots=True)
class Place:
    """A place in a module, with the operators that apply."""

    file: str
    at: _Range
    choices: tuple[tuple[str, int], ...]
    """Operator, and its occurrence in the module."""

    def mutant(self, operator: str, occurrence: int) -> Mutant:
        """Return one mutation of this place."""
        source = (ROOT / self.file).read_text(encoding="utf-8")
        code = mutate_code(source, get_operator(_PREFIX + operator)(), occurrence)
        assert code is not None, "the place exists"
        before, after = _changed_lines(source, code)
        return Mutant(self.file, self.at[0][0], operator, code, before, after)


def places_in(file: str, source: str) -> list[Place]:
    """Return all places of a module, in order.

    Annotations, and keywords of class declarations such as `frozen`, are no places.
    """
    left_out = list(_declarations(ast.parse(source)))
    found: dict[_Range, list[tuple[str, int]]] = defaultdict(list)
    nodes = [node for node in ast_nodes(get_ast(source)) if _can_be_place(node)]
    for name in operator_names():
        operator_name = name.removeprefix(_PREFIX)
        if operator_name in _LEFT_OUT or not name.startswith(_PREFIX):
            continue
        operator = get_operator(name)()
        positions = (at for node in nodes for at in operator.mutation_positions(node))
        for occurrence, at in enumerate(positions):
            if not any(begin <= at[0] < end for begin, end in left_out):
                found[at].append((operator_name, occurrence))
    return [Place(file, at, tuple(choices)) for at, choices in sorted(found.items())]


def sample(places: Iterable[Place], seed: int) -> Iterator[Mutant]:
    """Return mutants of all places in random order, one of each; equal seeds give equal orders."""
    rng = Random(seed)
    shuffled = list(places)
    rng.shuffle(shuffled)
    for place in shuffled:
        yield place.mutant(*rng.choice(place.choices))


def _can_be_place(node: "Node") -> bool:
    """Return whether an operator may apply: `*` and `/` among parameters are no operators."""
    if node.type == "operator":
        return node.parent is None or node.parent.type not in _PARAMETERS
    return node.type not in _NO_PLACES


def _declarations(tree: ast.Module) -> Iterator[_Range]:
    """Return the ranges of annotations, decorators and keywords of classes."""
    for node in ast.walk(tree):
        parts: list[ast.expr | None] = []
        match node:
            case ast.ClassDef():
                parts = [*node.decorator_list, *(each.value for each in node.keywords)]
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                parts = [*node.decorator_list, node.returns]
            case ast.arg() | ast.AnnAssign():
                parts = [node.annotation]
            case _:
                pass
        for part in parts:
            if part is not None:
                assert part.end_lineno is not None
                assert part.end_col_offset is not None
                yield (
                    (part.lineno, part.col_offset),
                    (part.end_lineno, part.end_col_offset),
                )


def _changed_lines(source: str, code: str) -> tuple[str, str]:
    old, new = source.splitlines(), code.splitlines()
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    changes = [each for each in matcher.get_opcodes() if each[0] != "equal"]
    return (
        " ".join(line.strip() for _, i, j, _, _ in changes for line in old[i:j]),
        " ".join(line.strip() for _, _, _, i, j in changes for line in new[i:j]),
    )
