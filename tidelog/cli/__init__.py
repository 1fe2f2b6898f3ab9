"""The command line: thin shells that call the client or start a broker, and print.

`main` is the entry point and holds the names of all commands. It imports the module of a command
on use, so that `--help` is quick.
"""
