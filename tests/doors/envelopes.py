"""What Spark's JVM sends, as `Envelope.java` writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lakehouse_source.spark.protocol.vocabulary import Envelope


def encode_request(body: Mapping[str, Any]) -> str:
    """A request of the JVM in its envelope."""
    return json.dumps({Envelope.PROTOCOL: Envelope.NUMBER, Envelope.REQUEST: body})
