"""The recipes in the documentation parse; its pages are short and their links exist."""

import re
from pathlib import Path

import pytest

from compress.pipeline.preflight.recipe_checks import NAMES, unused_settings
from compress.pretrain.pretrain_schema import PretrainRecipe
from compress.recipe.load import parse_as, parse_recipe
from compress.recipe.measure_schema import Measure
from compress.tasks import KINDS
from compress.tasks.validate_task import task_problems

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "measuring.md"
TASKS = (DOCS / "tasks.md").read_text(encoding="utf-8")
PAGES = sorted(DOCS.glob("*.md"))
SHOWN = (
    "budget",
    "cascades",
    "distilling",
    "pruning",
    "pruning-by-latency",
    "pruning-vocabulary",
    "students-and-teachers",
    "training-a-teacher",
    "training-cost",
)
RECIPE_PAGES = [DOCS / f"{name}.md" for name in SHOWN]
REQUIRED = {"task": "sst2", "teacher": "any", "student": "any"}
"""Keys added to a section that is shown by itself."""


def shown_sections(page: Path) -> list[str]:
    """Return the recipes and sections of a page; those that a block lists, a line each, one by one."""
    blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return [text for block in blocks for text in (block.splitlines() if lists_sections(block) else [block])]


def lists_sections(block: str) -> bool:
    """Return whether a block shows a section several times, in a line each."""
    keys = re.findall(r"^(\w+):", block, re.MULTILINE)
    return len(set(keys)) < len(keys)


@pytest.mark.parametrize("section", [section for page in RECIPE_PAGES for section in shown_sections(page)])
def test_sections_shown_in_docs_parse(section):
    required = "".join(f"{key}: {value}\n" for key, value in REQUIRED.items() if f"\n{key}:" not in f"\n{section}")
    parse_recipe(f"{required}{section}", "docs", (), NAMES, checks=[unused_settings])


@pytest.mark.parametrize("recipe", shown_sections(DOCS / "pretraining.md"))
def test_pretraining_recipes_shown_in_docs_parse(recipe):
    parse_as(PretrainRecipe, recipe, "docs", (), NAMES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_are_short_and_their_links_exist(page):
    text = page.read_text(encoding="utf-8")
    assert len(re.sub(r"```diff\n.*?```", "", text, flags=re.DOTALL).splitlines()) < 200
    targets = [target.partition("#") for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text)]
    for file, _, part in targets:
        assert (page.parent / file).exists()
        assert not part or f"# {part}" in (page.parent / file).read_text(encoding="utf-8").lower()


def test_documented_recipe_has_every_key_of_measure():
    text = PAGE.read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
    recipe = parse_recipe(text, "docs/measuring.md", (), NAMES)
    assert recipe.measure.model_fields_set == set(Measure.model_fields)
    assert (recipe.measure.budget, recipe.task.slices, recipe.variants) == (60.0, ("source",), ("torch-compiled",))


def recipe_of(text: str):
    return parse_recipe(f"{text}\nteacher: any\n", "docs/tasks.md", (), NAMES)


@pytest.mark.parametrize("shown", re.findall(r"```yaml\n(task: .*)\n", TASKS))
def test_documented_tasks_are_valid(shown):
    assert task_problems(recipe_of(shown).task) == []


@pytest.mark.parametrize("kind", KINDS)
def test_documented_columns_of_every_kind_are_its_defaults(kind):
    line = next(line for line in TASKS.splitlines() if line.startswith(f"| `{kind}`"))
    documented = [re.findall(r"`(\w+)`", cell) for cell in line.split("|")[2:4]]
    task = recipe_of(f"task: {{kind: {kind}, data: {{train: a, test_share: 0.1}}}}").task
    assert (tuple(documented[0]), documented[1][:1]) == (task.text, [task.label])
    assert KINDS[kind].metrics[0].name in line
    assert kind in re.findall(r"\w+", " ".join(re.findall(r"^## (.*)", TASKS, re.MULTILINE)))


def test_the_readme_is_short_and_its_links_exist():
    readme = DOCS.parent / "README.md"
    text = readme.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    assert len(text) <= 8000
    for target in re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", text):
        assert (readme.parent / target).exists(), target
    pages = {page.name for page in PAGES}
    linked = set(re.findall(r"\(docs/([\w-]+\.md)", text))
    reached = linked | {name for page in linked for name in re.findall(r"\]\(([\w-]+\.md)", (DOCS / page).read_text())}
    assert pages == reached, "a page that no reader finds"


def test_the_glossary_has_few_terms():
    rows = [line for line in (DOCS / "glossary.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert len(rows) - 1 <= 30
