"""Benchmarks: `python -m bench --help`, or `make bench`; the method is in `bench/README.md`."""
