"""What databases spell differently in the statements of the catalog."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    """What one database spells differently from the others.

    `now` is the database's clock in microseconds since 1970 UTC; `login` is the client's user as
    the database knows it, NULL if the database has no users; `is_login` tells whether the client
    may act as the login that committed `t`, NULL if there is no such login; `greatest` is the name
    of the function that picks the larger of two numbers; `among` tests membership in a bound list
    of ids and `ids` is that list as a relation; `files_of_s` joins files to a relation `s` of ids
    that comes first, one look-up per id; `bounds_of_s` joins the search index to a relation `s` of
    spans in the same way. `spans` is a bound relation of spans, empty where each span is bound by
    itself; `levels` tells which levels a column has; it is empty if seeking in the index is slower
    than reading it. `hex_lower` and `hex_upper` are keys as hexadecimal text. `highest_id` is a
    query for the highest id that was ever given in `$table`. `cascades`: rows that refer to deleted
    ones go with them. `new_file_ids` gives a number of ids (at least one) that no file has or had;
    `id_pairs` is a bound JSON object as a relation of `old_id`, its keys, and `new_id`.
    """

    placeholder: str
    now: str
    login: str
    is_login: str
    greatest: str
    among: str
    ids: str
    files_of_s: str
    lock: str
    new_file_ids: str
    id_pairs: str
    generated_key: str
    generated: str
    bytes_type: str
    without_rowid: str
    spans: str
    bounds_of_s: str
    levels: str
    hex_lower: str
    hex_upper: str
    highest_id: str
    cascades: bool = False

    def render(self, template: str) -> str:
        """The statement in this dialect, still with `?` for its values."""
        text = template
        for name in self.__slots__:
            text = text.replace("{" + name + "}", str(getattr(self, name)))
        return text


# A jump from each level to the next. No database's planner does this for DISTINCT.
LEVELS = (
    "WITH RECURSIVE found (level) AS (SELECT (SELECT level FROM column_bounds "
    "WHERE dataset_id = ? AND column_id = ? ORDER BY level LIMIT 1) UNION ALL "
    "SELECT (SELECT b.level FROM column_bounds AS b WHERE b.dataset_id = ? AND b.column_id = ? "
    "AND b.level > found.level ORDER BY b.level LIMIT 1) FROM found WHERE found.level IS NOT NULL"
    ") SELECT level FROM found WHERE level IS NOT NULL"
)
IN_SPAN = (
    "b.dataset_id = ? AND b.column_id = ? AND b.level = s.column1 "
    "AND b.upper >= s.column2 AND b.upper <= s.column3 AND b.lower <= s.column4"
)
