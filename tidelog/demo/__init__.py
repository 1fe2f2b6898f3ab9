"""The demonstration: real data through a broker that is killed, and a proof that nothing is lost.

`verification` is the core that judges; `story` runs everything and decides nothing. What people
see of it is in `tidelog.cli.demo`.
"""
