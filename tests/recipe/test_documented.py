"""The recipe that the documentation of measuring shows is one, and shows every key of `measure`."""

from pathlib import Path

from compress.pipeline.names import NAMES
from compress.recipe.load import parse_recipe
from compress.recipe.measuring import Measure
from compress.tasks.named import NAMED_TASKS

PAGE = Path(__file__).parents[2] / "docs" / "measuring.md"


def test_the_documented_recipe_reads_and_leaves_out_no_key_of_measure():
    text = PAGE.read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
    recipe = parse_recipe(text, "docs/measuring.md", (), NAMES, NAMED_TASKS)
    assert recipe.measure.model_fields_set == set(Measure.model_fields)
    assert (recipe.measure.budget, recipe.task.slices, recipe.variants) == (60.0, ("source",), ("torch-compiled",))
