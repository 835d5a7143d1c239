"""The fingerprints of every step of the shipped recipes and of those in the docs: what was trained stays valid.

A change of the code that changes none of them redoes nobody's training. One that must change some says why in its
message, and writes the file anew, as does a new recipe in docs: `python -m tests.pipeline.test_pinned_fingerprints`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from compress.errors import CompressError
from compress.pipeline.plan import make_plan
from compress.pipeline.preflight.recipe_checks import NAMES
from compress.pipeline.preflight.resolve import resolve
from compress.recipe.load import parse_recipe
from tests.recipe.test_documented import PAGES, shown_sections

ROOT = Path(__file__).parents[2]
PINS = Path(__file__).with_suffix(".json")
HOLD_THE_RECIPE = ("package", "report", "publish")
"""Kinds of steps whose settings are the whole recipe, which grows with every new key."""
SHORTEST = {"task": "sst2", "teacher": "minilm-l6", "student": "half-depth"}
"""Keys added to a section that is shown by itself."""
PLANNING = ("plan", "plan_variants", "steps.latency_step")
MACHINE = {
    "plan.contents_digest": lambda *_: "contents",
    **{f"{name}.describe": lambda: SimpleNamespace(fingerprint="machine") for name in PLANNING},
    **{f"{name}.versions": lambda _: {} for name in PLANNING},
    "steps.latency_step.usable_cores": lambda: 64,
    "plan.cuda_devices": list,
}
"""What differs from machine to machine, in `compress.pipeline`."""


@pytest.fixture(autouse=True)
def no_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans as if all machines were alike, and without files of data."""
    stand_in(monkeypatch)


def stand_in(patch: pytest.MonkeyPatch) -> None:
    for name, value in MACHINE.items():
        patch.setattr(f"compress.pipeline.{name}", value)
    patch.setattr("compress.pipeline.plan.check_columns", lambda _: None)


def recipes() -> Iterator[tuple[str, str]]:
    """Yield the name and text of every recipe, shipped ones first, then those of docs, numbered by page."""
    for path in sorted((ROOT / "recipes").glob("*.yaml")):
        yield path.name, path.read_text(encoding="utf-8")
    for page in PAGES:
        for number, shown in enumerate(shown_sections(page), start=1):
            missing = (each for each in SHORTEST.items() if f"\n{each[0]}:" not in f"\n{shown}")
            yield f"{page.name} {number}", "".join(f"{key}: {value}\n" for key, value in missing) + shown


def fingerprints(text: str) -> dict[str, str] | None:
    """Return those of a recipe's steps; None where it is no recipe of a task, or names files that are not here."""
    try:
        recipe = resolve(parse_recipe(text, "recipe", (), NAMES))
        plan = make_plan(recipe.model_copy(update={"publish": None}))
    except (CompressError, OSError):
        return None
    return {step.name: step.fingerprint for step in plan.steps if step.kind not in HOLD_THE_RECIPE}


def all_fingerprints() -> dict[str, dict[str, str]]:
    planned = {name: fingerprints(text) for name, text in recipes()}
    return {name: steps for name, steps in planned.items() if steps}


def test_no_fingerprint_changes() -> None:
    now, pinned = all_fingerprints(), json.loads(PINS.read_text(encoding="utf-8"))
    assert {each.partition(" ")[0] for each in pinned} >= {path.name for path in (ROOT / "recipes").glob("*.yaml")}
    assert now == pinned


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch)
        PINS.write_text(json.dumps(all_fingerprints(), indent=1) + "\n", encoding="utf-8")
