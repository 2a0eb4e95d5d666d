"""A catalog that was copied has a fence: the copy is written to, and this catalog is not.

Each commit asks for the fence in the statement that tells the state of its write, under the lock
of its dataset; whoever fences takes the locks of all datasets first. So every commit is in the
copy, or is refused. All SQL about it.
"""

from __future__ import annotations

from lakehouse_source.catalog.qualified_names import DEFAULT_NAMESPACE
from lakehouse_source.catalog.sql.names import NameChanges
from lakehouse_source.catalog.sql.session import Session, Statement
from lakehouse_source.catalog.sql.statements import FENCED_FOR
from lakehouse_source.errors import CatalogUnavailableError, InvalidOptionError

FENCED: Statement = (f"SELECT {FENCED_FOR}", ())
_WAIT_FOR_WRITERS = "UPDATE datasets SET claimed_at = claimed_at"
_SET = "INSERT INTO catalog_settings (name, value) VALUES ('fence', ?)"
_REMOVE = "DELETE FROM catalog_settings WHERE name = 'fence'"


def refuse_fenced(copy: str | None, catalog: str) -> None:
    """Refuse to write to a catalog whose fence names a copy."""
    if copy is not None:
        raise CatalogUnavailableError(
            catalog=catalog,
            reason=f"it was copied to {copy}, and only the copy is written to: use that catalog. "
            "To write to this one again, and not to the copy: plake catalog unfence "
            f"{catalog} {copy}",
        )


class FenceChanges:
    """The fence of a catalog, which one transaction sets or takes off."""

    _session: Session

    def set_fence(self, copy: str) -> bool:
        """Fence the catalog for a copy; False: it is fenced for this copy already.

        Running commits are waited for. `copy` is the shown URL of the copy.

        Raises:
            CatalogUnavailableError: it is fenced for another copy.
        """
        NameChanges(self._session).find_namespace(DEFAULT_NAMESPACE)  # new datasets wait here
        self._session.execute(_WAIT_FOR_WRITERS)
        found = self.fence()
        if found == copy:
            return False
        refuse_fenced(found, self._session.redacted_url)
        self._session.execute(_SET, (copy,))
        return True

    def fence(self) -> str | None:
        """The copy that the fence names; None: there is no fence."""
        ((found,),) = self._session.query(*FENCED)
        return found if found is None else str(found)

    def remove_fence(self, copy: str) -> None:
        """Take the fence off; `copy` is what it names.

        Raises:
            InvalidOptionError: there is no fence, or it names another copy.
        """
        found = self.fence()
        if found != copy:
            raise InvalidOptionError(
                option="copy",
                value=copy,
                reason="names no fence: the catalog has none."
                if found is None
                else f"is not what the fence names: {found}. Is that catalog written to no more?",
            )
        self._session.execute(_REMOVE)
