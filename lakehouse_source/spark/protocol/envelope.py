"""Door. The envelope of every message between Spark's JVM and plake's Python: JSON with a version.

`Envelope.java` is the other side, and `docs/protocol.md` tells which way each message goes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lakehouse_source.errors import InvalidOptionError, PlakeError
from lakehouse_source.spark.protocol.vocabulary import Envelope, Failed, Failure


def decode_request(text: str) -> dict[str, Any]:
    """The request in an envelope.

    Raises:
        InvalidOptionError: the envelope is of another release of the planner extension.
    """
    envelope = json.loads(text)
    number = envelope.get(Envelope.PROTOCOL)
    if number != Envelope.NUMBER:
        raise InvalidOptionError(
            option=Envelope.NAME,
            value=number,
            reason="is of another release than this package. Give Spark the jar of this package: "
            "lakehouse_source.spark.planner_jar() tells where it is.",
        )
    found: dict[str, Any] = envelope[Envelope.REQUEST]
    return found


def encode_response(body: Mapping[str, Any]) -> str:
    """An answer for the JVM."""
    return json.dumps({Envelope.PROTOCOL: Envelope.NUMBER, Envelope.RESPONSE: body})


def encode_error(error: PlakeError, kind: str = Failure.OTHER) -> str:
    """The answer for a request that failed. `kind`: a value of `Failure`."""
    error_body = {
        Failed.CODE: error.code,
        Failed.KIND: kind,
        Failed.MESSAGE: str(error),
        Failed.FACTS: error.facts,
    }
    return json.dumps({Envelope.PROTOCOL: Envelope.NUMBER, Envelope.ERROR: error_body}, default=str)


def for_pickle(text: str) -> bytes:
    """An envelope for the state of an object that Spark pickles: the JVM finds it in the bytes."""
    return f"{Envelope.BEGIN}{len(text):012d}>{text}".encode("ascii")
