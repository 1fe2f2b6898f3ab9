"""Arrow columns from decoded values.

Pure: no clock, no I/O. Each field becomes one list of Python objects, which Arrow converts at once:
rows of dicts would cost a third more.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from math import inf
from operator import itemgetter, methodcaller
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark_connector.values.value_type import Kind, ValueType

Build = Callable[[Sequence[Any]], pa.Array]
"""Returns the Arrow array of a sequence of values, where `None` is null."""
FieldGetter = Callable[[ValueType, int], Callable[[Any], Any]]
"""Returns the function that reads a field, by its index, of a decoded struct."""

_LEAVES: Final[dict[Kind, pa.DataType]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_ITEMS: Final = methodcaller("items")
_TIMES: Final = ("timestamp", "timestamp_ntz")


def arrow_type(of: ValueType) -> pa.DataType:
    """Return the Arrow type, as Spark converts its own."""
    fields = [pa.field(each.name, arrow_type(each.type), each.is_nullable) for each in of.fields]
    if of.kind == "struct":
        return pa.struct(fields)
    if of.kind == "array":
        return pa.list_(fields[0])
    if of.kind == "map":
        return pa.map_(*fields)
    if of.kind == "decimal":
        return pa.decimal128(of.precision, of.scale)
    return _LEAVES[of.kind]


def builder_of(of: ValueType, getter: FieldGetter) -> Build:
    """Return the function that builds a column of this type.

    A struct is an object that `getter` reads, an array a list, and a map a dict. The function
    raises an error of Arrow, `ValueError` or `OverflowError` for a value that does not fit.
    """
    if of.kind == "struct":
        return _structs(of, getter)
    if of.kind in ("array", "map"):
        return _lists(of, getter)
    kind = arrow_type(of)
    if of.kind == "float":
        return _floats
    if of.kind in _TIMES and of.unit != "us":
        coarse = pa.timestamp(of.unit, tz="UTC" if of.kind == "timestamp" else None)
        return lambda values: pa.array(values, coarse).cast(kind)
    return lambda values: pa.array(values, kind)


def _floats(values: Sequence[float | None]) -> pa.Array:
    """Return numbers of 64 bits in 32 bits: Arrow makes those that are too large infinite."""
    found = pa.array(values, pa.float32())
    for row in pc.indices_nonzero(pc.is_inf(found)).to_pylist():
        if values[row] not in (inf, -inf):
            raise ValueError(f"{values[row]} does not fit a float")
    return found


def _structs(of: ValueType, getter: FieldGetter) -> Build:
    kind = arrow_type(of)
    parts = [
        (getter(of, index), builder_of(each.type, getter)) for index, each in enumerate(of.fields)
    ]

    def build(values: Sequence[Any]) -> pa.Array:
        valid = _valid(values)
        if valid is None:
            children = [make(list(map(get, values))) for get, make in parts]
        else:
            children = [
                make([None if value is None else get(value) for value in values])
                for get, make in parts
            ]
        return pa.Array.from_buffers(kind, len(values), [valid], children=children)

    return build


def _lists(of: ValueType, getter: FieldGetter) -> Build:
    kind = arrow_type(of)
    is_map = of.kind == "map"
    inner = of.fields[0].type
    if not is_map and not inner.fields and inner.unit == "us" and inner.kind != "float":
        return lambda values: pa.array(values, kind)
    entries = _entries(of, getter) if is_map else builder_of(inner, getter)

    def build(values: Sequence[Any]) -> pa.Array:
        ends = pa.array(accumulate(map(_length, values), initial=0), pa.int32()).buffers()[1]
        given = filter(None, values)
        flat = chain.from_iterable(map(_ITEMS, given) if is_map else given)
        children = [entries(list(flat))]
        return pa.Array.from_buffers(kind, len(values), [_valid(values), ends], children=children)

    return build


def _entries(of: ValueType, getter: FieldGetter) -> Build:
    """Return the builder of the pairs of key and value of a map."""
    kind = pa.struct(
        [pa.field(each.name, arrow_type(each.type), each.is_nullable) for each in of.fields]
    )
    keys, items = (builder_of(each.type, getter) for each in of.fields)

    def build(pairs: Sequence[Any]) -> pa.Array:
        children = [
            keys(list(map(itemgetter(0), pairs))),
            items(list(map(itemgetter(1), pairs))),
        ]
        return pa.Array.from_buffers(kind, len(pairs), [None], children=children)

    return build


def _length(value: Any) -> int:  # noqa: ANN401 (a list, a dict or None)
    return 0 if value is None else len(value)


def _valid(values: Sequence[Any]) -> pa.Buffer | None:
    """Return the validity of values; `None` if none is null."""
    if not any(value is None for value in values):
        return None
    return pa.array([value is not None for value in values], pa.bool_()).buffers()[1]
