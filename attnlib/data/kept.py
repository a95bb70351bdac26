"""What is slow to make is made once and kept: paragraphs, parses, questions.

A kept file is named by what it holds, the version of the code that made it, and a digest of all it
was made from, such as `parsed/wiki-sample-v1-3fa9c2d41b07.jsonl`. The version is a constant of the
module that makes it, raised by hand when that is meant to make something else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from attnlib.files import written_whole

Item = TypeVar("Item")


def kept_file(cache: Path | None, name: str, version: int, *made_from: object) -> Path | None:
    """Where something is kept below the cache folder; nowhere without such a folder."""
    if cache is None:
        return None
    digest = hashlib.sha256(repr(made_from).encode()).hexdigest()
    return cache / f"{name}-v{version}-{digest[:12]}.jsonl"


def keep_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """A line per row, then the sha256 of the lines; the file appears only when it is whole.

    Nothing is kept in a folder that cannot be written: what was made is made again then.
    """
    body = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as draft:
            draft.write_bytes(body + hashlib.sha256(body).hexdigest().encode() + b"\n")


def kept_rows(path: Path | None) -> list[dict[str, Any]]:
    """What `keep_rows` left, or nothing if the file is not there or is not what was written."""
    try:
        content = path.read_bytes() if path is not None else b""
    except OSError:
        return []
    body, checksum = content[:-65], content[-65:]
    if checksum != hashlib.sha256(body).hexdigest().encode() + b"\n":
        return []
    return [json.loads(line) for line in body.decode().split("\n")[:-1]]


def made_in_order(
    order: Iterable[int],
    make: Callable[[Iterable[int]], Iterator[tuple[list[Item], Mapping[str, int]]]],
    *,
    limit: int | None,
    kept: Path | None,
    load: Callable[[dict[str, Any]], Item],
) -> tuple[list[tuple[int, Item]], Counter[str]]:
    """(place, item) of places taken in `order` until there are `limit` items; what was left out.

    order  places, each once; the items come back by place whatever it is, and a smaller limit
           gives a subset of a larger one's items
    make   from places to the items of each and the counts of what it left out, in turn; no more
           is taken from it than needed
    kept   a file of what was made before, which grows by what is made now (see `kept_file`); one
           that is damaged is made again
    load   from the fields of an item, a dataclass, to the item
    """
    order = list(order)
    known: dict[int, tuple[list[Any], Mapping[str, int]]] = {
        row["place"]: ([load(item) for item in row["items"]], row["skipped"])
        for row in kept_rows(kept)
    }
    n_known = len(known)
    fresh = make([place for place in order if place not in known])
    found: list[tuple[int, Item]] = []
    skipped: Counter[str] = Counter()
    for place in order:
        room = None if limit is None else limit - len(found)
        if room == 0:
            break
        if place not in known:
            known[place] = next(fresh)
        items, left_out = known[place]
        found += [(place, item) for item in items[:room]]
        skipped.update(left_out)
    if kept is not None and len(known) > n_known:
        rows = []
        for place, (items, left_out) in sorted(known.items()):
            fields = [asdict(item) for item in items]
            rows.append({"place": place, "items": fields, "skipped": dict(left_out)})
        keep_rows(kept, rows)
    return sorted(found, key=lambda pair: pair[0]), +skipped
