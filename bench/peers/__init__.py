"""Benchmarks of tidelog beside alternative systems, on one machine, in one run."""
