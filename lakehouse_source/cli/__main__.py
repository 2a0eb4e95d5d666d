"""Door. `python -m lakehouse_source.cli` is the command `plake`."""

from lakehouse_source.cli.main import main

if __name__ == "__main__":
    main()
