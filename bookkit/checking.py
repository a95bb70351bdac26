"""Values that people wrote into files, checked against the types that they should have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, Optional

from bookkit.errors import BadValue, unknown

_TYPES = {
    **{"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict},
    **{"tuple": list | tuple, "List": list, "Dict": dict},
    **{"Any": Any, "Literal": Literal, "Optional": Optional},
}
"""All that an annotation may name; yaml has no tuples, so a list will do."""


def fits(value: object, annotation: str) -> bool:
    """Whether a value has the annotated type; an annotation we do not know accepts everything."""
    from pydantic import TypeAdapter, ValidationError

    try:
        wanted = TypeAdapter(eval(annotation, {"__builtins__": {}}, _TYPES))
    except (SyntaxError, NameError, TypeError, AttributeError):
        return True
    try:
        wanted.validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


def check_keys(
    given: Any, types: Mapping[str, str], where: str, optional: Collection[str] = ()
) -> None:
    """Refuse keys that are unknown, of another type or, unless they are optional, missing."""
    if not isinstance(given, dict):
        raise BadValue(f"{where} holds {type(given).__name__}, expected keys: {', '.join(types)}.")
    for key, value in given.items():
        if key not in types:
            raise unknown("key", str(key), types, f" in {where}")
        if not fits(value, types[key]):
            raise BadValue(f"'{key}' in {where} is {value!r}, expected {types[key]}.")
    missing = [key for key in types if key not in given and key not in optional]
    if missing:
        raise BadValue(f"{where} lacks '{missing[0]}' ({types[missing[0]]}). Add it.")
