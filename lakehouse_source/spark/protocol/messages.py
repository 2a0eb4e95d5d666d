"""Door. Messages between Spark's JVM and plake's Python: JSON in an envelope, values by type.

`Envelope.java` is the other side, and `docs/protocol.md` tells which way each message goes.

This is for the messages of tasks to the driver. A pickle would run the sender's code; here the
reader says which class it expects, and only classes that its fields declare are made. All values
survive exactly: NaN, bytes, decimals, whole numbers of any size, timestamps to the nanosecond.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import types
import typing
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar, cast

import pyarrow as pa

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


Value = TypeVar("Value")

_UNIONS = (typing.Union, types.UnionType)


def to_json(value: object) -> str:
    """A value of a dataclass as JSON; `from_json` with its class restores the value.

    Raises:
        TypeError: the value holds something without a form in JSON.
    """
    return json.dumps(_encoded(value, type(value)), separators=(",", ":"))


def from_json(text: str, kind: type[Value]) -> Value:
    """The value of a class from its text.

    Raises:
        ValueError: the text is not a value of that class.
    """
    try:
        return cast("Value", _decoded(json.loads(text), kind))
    except (
        *(TypeError, LookupError, AttributeError, ArithmeticError, RecursionError),
        *(binascii.Error, pa.ArrowException),
    ) as error:
        raise ValueError(f"this is no {kind.__name__}: {error}") from error


# --- values whose declared type says enough ------------------------------------


def _encoded(value: Any, kind: Any) -> Any:
    if kind in (str, bool, int) and type(value) is kind:
        return value
    if _is_enum(kind) and isinstance(value, kind):
        return [value.name]
    if dataclasses.is_dataclass(kind) and type(value) is kind:
        hints = _hints(cast("Any", kind))
        return {name: _encoded(getattr(value, name), hints[name]) for name in hints}
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple and isinstance(value, tuple):
        return [_encoded(one, type_) for one, type_ in zip(value, _members(inner, len(value)))]
    if origin is frozenset and isinstance(value, frozenset):
        return [_encoded(one, inner[0]) for one in sorted(value)]
    if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, Mapping):
        return [[_encoded(k, inner[0]), _encoded(v, inner[1])] for k, v in value.items()]
    if origin in _UNIONS:
        # A member with a form of its own, else a value that says its type.
        for place, member in enumerate(inner):
            if _is_structure(member) and _has_kind(value, member):
                return {str(place): _encoded(value, member)}
    elif kind in (Any, type(None)) or kind in _SCALARS:
        pass
    else:
        raise TypeError(f"{type(value).__name__} is no {kind}")
    return _tagged(value)


def _decoded(data: Any, kind: Any) -> Any:
    if kind in (str, bool, int):
        return _expect(data, kind)
    if _is_enum(kind):
        (name,) = _expect(data, list)
        return kind[name]
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = _hints(kind)
        if _expect(data, dict).keys() != hints.keys():
            raise ValueError(f"{sorted(data)} are not the fields of {kind.__name__}")
        return kind(**{name: _decoded(data[name], hints[name]) for name in hints})
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        found = _expect(data, list)
        members = _members(inner, len(found))
        return tuple(_decoded(one, type_) for one, type_ in zip(found, members, strict=True))
    if origin is frozenset:
        return frozenset(_decoded(one, inner[0]) for one in _expect(data, list))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        pairs = _expect(data, list)
        return {_decoded(key, inner[0]): _decoded(value, inner[1]) for key, value in pairs}
    if origin in _UNIONS and isinstance(data, dict):
        ((place, value),) = data.items()
        member = inner[int(place)]
        if not _is_structure(member):
            raise ValueError(f"{member} has no form of its own")
        return _decoded(value, member)
    value = _untagged(data)
    if kind is not Any and not any(_has_kind(value, one) for one in inner or (kind,)):
        raise ValueError(f"{type(value).__name__} is no {kind}")
    return value


@lru_cache(maxsize=100)
def _hints(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _members(inner: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    return (inner[0],) * count if len(inner) == 2 and inner[1] is Ellipsis else inner


def _is_structure(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) or _is_enum(kind) or typing.get_origin(kind) is not None


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _has_kind(value: object, kind: Any) -> bool:
    kind = typing.get_origin(kind) or kind
    if kind in (int, float, str) or dataclasses.is_dataclass(kind):
        return type(value) is kind
    return isinstance(value, kind)


def _expect(data: Any, kind: type) -> Any:
    if type(data) is not kind:
        raise ValueError(f"{data!r} is no {kind.__name__}")
    return data


# --- values that say their type ------------------------------------------------


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _schema_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(_bytes(text)))


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"{text!r} is no decimal") from error


# By class: the name in the JSON, the text of a value, and the value of a text.
_SCALARS: dict[Any, tuple[str, Callable[[Any], str], Callable[[str], Any]]] = {
    str: ("text", str, str),
    bool: ("flag", lambda value: "true" if value else "", bool),
    int: ("whole", str, int),
    float: ("float", float.hex, float.fromhex),
    bytes: ("bytes", lambda value: base64.b64encode(value).decode(), _bytes),
    Decimal: ("decimal", str, _decimal),
    datetime: ("time", datetime.isoformat, datetime.fromisoformat),
    date: ("date", date.isoformat, date.fromisoformat),
    time: ("clock", time.isoformat, time.fromisoformat),
    timedelta: (
        "span",
        lambda value: str(value // timedelta(microseconds=1)),
        lambda text: timedelta(microseconds=int(text)),
    ),
    pa.Schema: ("schema", _schema_text, _schema),
    pa.DataType: (
        "type",
        lambda value: _schema_text(pa.schema([("", value)])),
        lambda text: _schema(text).field(0).type,
    ),
}
_BY_NAME = {name: read for name, _, read in _SCALARS.values()}


def _tagged(value: Any) -> Any:
    """None, or the name of a value's type and its text."""
    if value is None:
        return None
    if isinstance(value, tuple | list):
        return [type(value).__name__, [_tagged(one) for one in value]]
    if isinstance(value, dict):
        return ["dict", [[_tagged(key), _tagged(one)] for key, one in value.items()]]
    if isinstance(value, pa.DataType):
        name, text, _ = _SCALARS[pa.DataType]
        return [name, text(value)]
    if type(value) not in _SCALARS:
        raise TypeError(f"{type(value).__name__} has no form in JSON")
    name, text, _ = _SCALARS[type(value)]
    return [name, text(value)]


def _untagged(data: Any) -> Any:
    if data is None:
        return None
    name, text = _expect(data, list)
    if name in ("tuple", "list"):
        found = [_untagged(one) for one in _expect(text, list)]
        return tuple(found) if name == "tuple" else found
    if name == "dict":
        return {_untagged(key): _untagged(one) for key, one in _expect(text, list)}
    return _BY_NAME[name](_expect(text, str))


# --- errors --------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class ErrorMessage:
    """An error of plake, by its code, with the arguments of its constructor."""

    code: str
    facts: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, error: PlakeError) -> ErrorMessage:
        """The error in this form. A fact without a form becomes text."""
        return cls(error.code, tuple((name, _fact(fact)) for name, fact in error.facts.items()))

    def error(self) -> PlakeError:
        """The restored error.

        Raises:
            ValueError: there is no such error.
        """
        found = {kind.code: kind for kind in _errors(PlakeError)}.get(self.code)
        if found is None:
            raise ValueError(f"{self.code!r} is no error of plake")
        return found(**dict(self.facts))


def _fact(fact: Any) -> Any:
    try:
        _tagged(fact)
    except TypeError:
        return str(fact)
    return fact


def _errors(kind: type[PlakeError]) -> list[type[PlakeError]]:
    return [kind, *(found for below in kind.__subclasses__() for found in _errors(below))]
