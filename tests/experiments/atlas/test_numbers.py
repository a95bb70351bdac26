"""Every number of every head in the atlas is that of the table it names as its source.

Of the published atlas, and of the one that the pocket edition draws, once it is built.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import false_discovery_control

from attnlib.data.assets import cache_folder
from experiments.atlas import Atlas, Fact, atlas_in, from_text, load

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "book" / "published"
POCKET = ROOT / "_build" / "pocket" / "notebooks" / "agreement.ipynb"
SOURCES = [*sorted((PUBLISHED / "atlas").glob("*.json")), POCKET]

Told = dict[str, list[object]]


@pytest.fixture(scope="module", params=SOURCES, ids=lambda path: path.parent.parent.name)
def atlas(request: pytest.FixtureRequest) -> Atlas:
    if request.param != POCKET:
        return load(request.param)
    if not POCKET.is_file():
        pytest.skip("the pocket edition was not built: `make book` comes first")
    carried = atlas_in(POCKET)
    assert carried is not None
    return from_text(carried, POCKET.name)


def test_a_published_chapter_on_agreement_has_its_atlas() -> None:
    chapter, file = PUBLISHED / "agreement.ipynb", PUBLISHED / "atlas" / "e5-small.json"
    assert chapter.is_file() == file.is_file()


def table_of(source: str) -> pd.DataFrame:
    """The table of a result, where it is published or where it is kept."""
    for folder in (PUBLISHED / "store", cache_folder() / "store"):
        if (folder / f"{source}.parquet").is_file():
            return pd.read_parquet(folder / f"{source}.parquet")
    raise AssertionError(f"no table of {source}")


def in_order(rows: pd.DataFrame, **columns: str) -> Told:
    rows = rows.sort_values(["layer", "head"])
    return {name: rows[column].tolist() for name, column in columns.items()}


def ends(rows: pd.DataFrame, column: str, sign: float = 1, shift: float = 0) -> Told:
    """A number and its ends under another name, turned around if the sign is negative."""
    low, high = (f"{column}_low", f"{column}_high") if f"{column}_low" in rows else ("low", "high")
    low, high = (low, high) if sign > 0 else (high, low)
    told = in_order(rows, value=column, low=low, high=high)
    return {
        name: [shift + sign * number for number in column]  # type: ignore[operator]
        for name, column in told.items()
    }


def summed(*parts: str) -> Callable[[Fact, pd.DataFrame], Told]:
    def read(fact: Fact, table: pd.DataFrame) -> Told:
        grids = [in_order(table[table["key"] == f"part_{name}"], mean="mean") for name in parts]
        return {"value": np.sum([grid["mean"] for grid in grids], 0).tolist()}

    return read


def label(fact: Fact, table: pd.DataFrame) -> Told:
    rows = table[table["vocabulary"] == fact.key.removesuffix("_label")]
    return in_order(rows, value="label", stability="same")


def role(fact: Fact, table: pd.DataFrame) -> Told:
    name = fact.key.removeprefix("role_").replace("block_authors", "block@authors")
    return in_order(table[table["role"] == name], value="assigned", bias="bias", p="p", q="q")


def best(table: pd.DataFrame) -> pd.DataFrame:
    return table.loc[table.groupby(["layer", "head"])["gain"].idxmax()]


def best_relation(fact: Fact, table: pd.DataFrame) -> Told:
    rows = best(table)
    sure = rows["low"] > 0
    named = rows[["layer", "head"]].assign(
        name=np.where(sure, rows["relation"], "none"),
        **{column: rows[column].where(sure) for column in ("accuracy", "baseline")},
    )
    return in_order(named, value="name", accuracy="accuracy", baseline="baseline")


READ: dict[str, Callable[[Fact, pd.DataFrame], Told]] = {
    **{
        f"mass_to_{to}": lambda fact, table: ends(table[table["key"] == fact.key], "mean")
        for to in ("previous", "next", "self", "cls", "sep", "period_or_comma")
    },
    "entropy": lambda fact, table: ends(table[table["key"] == "entropy"], "mean"),
    "near_mass": summed("self", "window_01"),
    "special_mass": summed("cls", "sep", "comma", "period"),
    "best_relation": best_relation,
    "best_relation_gain": lambda fact, table: ends(best(table), "gain"),
    "coreference": lambda fact, table: ends(table, "accuracy"),
    "questions_loss": lambda fact, table: ends(table, "cost"),
    "gradient": lambda fact, table: ends(
        table, "gradient" if "gradient" in table else "mean", sign=1000
    ),
    "disabled_": lambda fact, table: {
        **ends(table, "cost", sign=-1),
        **in_order(table, p="p"),
    },
    "changed_": lambda fact, table: ends(table, "influence"),
    "tuned_": lambda fact, table: (
        ends(table, "change")
        if "change" in table
        else ends(table, "cosine", sign=-1, shift=1)  # of an atlas published before
    ),
    "role_": role,
    **{f"{name}_label": label for name in ("clark", "rule", "network", "guan")},
}
"""How a fact is read from its table; a name that ends in _ stands for all that begin so."""


def expected(fact: Fact) -> Told:
    table = table_of(fact.source)
    exact = [read for name, read in READ.items() if name == fact.key]
    family = [
        read for name, read in READ.items() if name.endswith("_") and fact.key.startswith(name)
    ]
    assert exact or family, f"no test reads {fact.key}"
    return (exact or family)[0](fact, table)


def test_every_fact_is_that_of_its_table(atlas: Atlas) -> None:
    assert len(atlas.facts) >= 40
    for fact in atlas.facts:
        for name, column in expected(fact).items():
            own = fact.detail[name] if name in fact.detail else getattr(fact, name)
            if isinstance(column[0], str):
                assert list(own) == column, (fact.key, name)
            else:
                wanted = np.array(column, dtype=float)
                got = np.array([np.nan if one is None else one for one in own], dtype=float)
                np.testing.assert_allclose(got, wanted, rtol=1e-6, err_msg=f"{fact.key} {name}")


def test_tests_of_tasks_are_corrected_for_all_heads_and_tasks(atlas: Atlas) -> None:
    tasks = [fact for fact in atlas.facts if fact.key.startswith("disabled_")]
    p = np.array([fact.detail["p"] for fact in tasks], float)
    wanted = false_discovery_control(p.ravel()).reshape(p.shape)
    np.testing.assert_allclose([fact.detail["q"] for fact in tasks], wanted, rtol=1e-6)


def test_a_fact_with_one_wrong_number_is_caught(atlas: Atlas) -> None:
    fact = atlas.fact("mass_to_next")
    own = np.array(fact.value, dtype=float)
    own[7] += 0.001
    wanted = expected(fact)["value"]
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(own, np.array(wanted, float), rtol=1e-6)


def test_relatives_and_portraits_are_those_of_their_tables(atlas: Atlas) -> None:
    table = table_of(atlas.fact("entropy").source)
    for place, offset in enumerate(atlas.offsets):
        rows = table[table["key"] == f"offset_{offset}"]
        wanted = in_order(rows, mean="mean")["mean"]
        got = np.array(atlas.portraits, float)[:, place]
        np.testing.assert_allclose(got, np.array(wanted, float), atol=2e-4)
    distances = np.array(atlas.distances, float)
    assert np.allclose(distances, distances.T) and (np.diag(distances) == 0).all()
