"""Pure. Dates and timestamps as counts: their calendar fields, their text, and time zones."""

from __future__ import annotations

from datetime import date, timedelta, tzinfo

from lakehouse_source.predicate.times import offset_at, parse_date, parse_timestamp, to_instant
from lakehouse_source.schema.ordinal import DAY_NS, EPOCH_DATE, YEARS, YEARS_DAYS

SECOND_US = 10**6
DAY_US = 86_400 * SECOND_US
# Spark's trimAll takes these away: white space and control characters in one byte.
BLANKS = "".join(map(chr, range(0x21))) + "\x7f"


def civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of a count of days, in any year."""
    cycles, within = divmod(days, YEARS_DAYS)
    near = EPOCH_DATE + timedelta(days=within)
    return near.year + cycles * YEARS, near.month, near.day


def date_text(days: int) -> str:
    """A date in the form of Spark's CAST to STRING."""
    year, month, day = civil(days)
    return f"{_year(year)}-{month:02}-{day:02}"


def timestamp_text(wall_us: int) -> str:
    """A wall clock time in the form of Spark's CAST to STRING."""
    days, rest = divmod(wall_us, DAY_US)
    seconds, micros = divmod(rest, SECOND_US)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    fraction = f".{micros:06}".rstrip("0") if micros else ""
    return f"{date_text(days)} {clock}{fraction}"


def _year(year: int) -> str:
    # Java writes a sign before years of other than four digits.
    return f"{year:04}" if 0 <= year <= 9999 else f"{year:+05}"


def wall_us(instant_us: int, zone: tzinfo) -> int:
    """What a wall clock in `zone` shows at an instant."""
    return instant_us + offset_at(instant_us * 1000, zone) // 1000


def instant_us(wall: int, zone: tzinfo) -> int:
    """The instant at which a wall clock in `zone` shows `wall`."""
    return to_instant(wall * 1000, zone) // 1000


def days_of_text(text: str) -> int:
    """Text as a count of days, as Spark casts it.

    Raises:
        ValueError: it is not a date.
    """
    found = parse_date(_without_blanks(text))
    return (found - EPOCH_DATE).days if isinstance(found, date) else found.nanoseconds // DAY_NS


def micros_of_text(text: str, zone: tzinfo, *, zoned: bool) -> int:
    """Text as microseconds: of an instant, or of a wall clock if not `zoned`.

    Raises:
        ValueError: it is not a timestamp, or names a zone and must not.
    """
    found = parse_timestamp(_without_blanks(text))
    micros = found.nanoseconds // 1000
    if zoned:
        return micros if found.zoned else instant_us(micros, zone)
    if found.zoned:
        raise ValueError(f"the text {text!r} has a zone and TIMESTAMP_NTZ has none")
    return micros


def _without_blanks(text: str) -> str:
    bare = text.strip(BLANKS)
    if bare != bare.strip():  # other white space, which Spark does not take away
        raise ValueError(f"the text {text!r} is not a date or timestamp")
    return bare
