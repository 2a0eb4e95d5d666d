"""Door. The console command: its exit codes, and errors in one line.

Codes: 0 done, 1 an error of plake or "no" to a question, 2 wrong usage, 3 a check found something,
130 interrupted, 141 nobody reads the output any more. Results go to standard output, all else to
standard error.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import NoReturn

from lakehouse_source.errors import PlakeError

INTERRUPTED, NO_READER = 130, 141
# Imports make many objects that stay. Collecting garbage among them, again and again and once more
# at the end, took 30 of the 280 ms of `plake history`.
_OBJECTS_OF_IMPORTS = 100_000


def main() -> NoReturn:
    """Run the command that the arguments of the process name."""
    gc.set_threshold(_OBJECTS_OF_IMPORTS)
    try:
        import click
    except ModuleNotFoundError:
        sys.stderr.write("plake needs the packages click and rich: pip install 'plake[cli]'\n")
        sys.exit(1)
    from lakehouse_source.cli.group import PLAKE
    from lakehouse_source.cli.output import NoReaderError, one_line

    try:
        code = PLAKE.main(prog_name="plake", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except PlakeError as error:
        sys.stderr.write(f"{error.code}: {one_line(str(error))}\n")
        code = 1
    except (click.Abort, KeyboardInterrupt):
        sys.stderr.write("interrupted\n")
        code = INTERRUPTED
    except (BrokenPipeError, NoReaderError):
        # Python flushes once more when it ends, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = NO_READER
    if "duckdb" not in sys.modules:  # DuckDB complains of objects that are left
        gc.freeze()
    sys.exit(code if isinstance(code, int) else 0)
