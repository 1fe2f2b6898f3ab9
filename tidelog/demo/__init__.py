"""The demonstration: real data, a broker that is killed, and a proof that no record is lost.

`verification` is the core with the checks; `story` is the shell that runs all steps.
`tidelog.cli.demo` prints the output.
"""
