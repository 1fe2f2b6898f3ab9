"""The command `tidelog`, started with `python -m tidelog`."""

from tidelog.cli.main import main

if __name__ == "__main__":
    main()
