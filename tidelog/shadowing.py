"""A clear error when somebody's module hides one of our packages.

Our packages have plain names at the top level (docs/decisions/0001), so a file `client.py` beside
somebody's program would be found in place of ours.
"""

import importlib.util
from pathlib import Path


def require_own(*packages: str) -> None:
    """Check that these packages are the ones that belong to this distribution.

    Raises:
        ImportError: Another module of that name is found first; the message says where.
    """
    root = Path(__file__).resolve().parent.parent
    for package in packages:
        found = importlib.util.find_spec(package)
        origin = None if found is None else found.origin
        if origin is None or Path(origin).resolve() != root / package / "__init__.py":
            what = "nothing of that name" if origin is None else origin
            raise ImportError(
                f"tidelog needs its own package {package!r} and finds {what};"
                f" rename that file, or start Python in another directory"
            )
