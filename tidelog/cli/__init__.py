"""The command line: thin shells that call the client or start a broker, and print.

`main` is the entry point and knows the names of all commands; the module of a command is imported
when that command is used, so that asking for help is quick.
"""
