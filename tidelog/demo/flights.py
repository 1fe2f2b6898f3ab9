"""The flights that left New York City in January 2013.

Shell: reads a file of the package; `tidelog/data/README.md` names its source.
"""

from dataclasses import dataclass
from importlib.resources import files

import zstandard

_FILE = "flights-2013-01.csv.zst"
_UNKNOWN = b"NA"


@dataclass(frozen=True, slots=True)
class Flights:
    """One record for each flight, in the order of the file."""

    columns: list[str]
    """Names of the fields of a value."""
    keys: list[bytes | None]
    """The tail number of the aircraft; `None` if unknown."""
    values: list[bytes]
    """Comma-separated fields, different for each flight."""


def load_flights() -> Flights:
    """Return all flights; block for a moment."""
    packed = (files("tidelog") / "data" / _FILE).read_bytes()
    title, *lines = zstandard.ZstdDecompressor().decompress(packed).splitlines()
    columns = title.decode("ascii").split(",")
    place = columns.index("tailnum")
    tails = (line.split(b",", place + 1)[place] for line in lines)
    return Flights(columns, [None if tail == _UNKNOWN else tail for tail in tails], lines)
