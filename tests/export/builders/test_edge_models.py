"""Which models become ExecuTorch and LiteRT files: every family and task kind, and models of our own shapes."""

import functools

import pytest

import compress
from compress.export.comparison.parity_check import LIMITS
from compress.families import FAMILIES
from compress.model_folder.model_info import FolderInfo, read_info
from compress.models import save_model
from compress.models.student.build_student import build_student
from compress.prune.prune_vocabulary import prune_vocabulary_from_model
from compress.prune.surgery import remove_units
from compress.recipe.student_schema import Student
from compress.variants import VARIANTS
from tests.edge_exports import EDGE_VARIANTS, OTHER_KINDS, model_of_kind, needs_runtime
from tests.run_readme import agrees, run_readme, typed_and_given
from tests.variant_builder import build

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def source(tiny_model, tiny_folder, tiny_tokenizer, tiny_task, tmp_path_factory):
    """Makes the folder of a tiny model of a family, a kind, or a shape that we make of BERT, once."""

    def pruned(model):
        return remove_units(model, [[0, 2], [1]], [list(range(48)), list(range(16, 32))])

    def with_fewer_pieces():
        rows = {"train": [{"text": "a good film"}, {"text": "so very dull"}]}
        model, fewer, _ = prune_vocabulary_from_model(tiny_model("bert"), tiny_tokenizer, rows, tiny_task, "seen", 32)
        folder = tmp_path_factory.mktemp("fewer")
        save_model(model, fewer, folder, FolderInfo(step="vocabulary", made_by="tests", task=tiny_task))
        return folder

    shapes = {
        "uneven heads and neurons": lambda: tiny_folder(pruned(tiny_model("bert"))),
        "factorised word vectors": lambda: tiny_folder(build_student(tiny_model("bert"), Student(factors=8)).eval()),
        "fewer word pieces": with_fewer_pieces,
    }

    @functools.cache
    def make(name):
        if name in OTHER_KINDS:
            return model_of_kind(name, tiny_model, tiny_folder)
        return shapes[name]() if name in shapes else tiny_folder(name)

    return make


@pytest.fixture(scope="module")
def exported(source, tmp_path_factory):
    """Makes the export of a model as a variant, once, with what it is made from."""

    @functools.cache
    def make(name, variant):
        needed = VARIANTS[variant].needs
        folder = tmp_path_factory.mktemp(variant)
        build(variant, make(name, needed) if needed else source(name), folder)
        return folder

    return make


SHAPES = ("uneven heads and neurons", "factorised word vectors", "fewer word pieces")


@pytest.mark.parametrize("variant", EDGE_VARIANTS)
@pytest.mark.parametrize("name", [*SHAPES, *FAMILIES, *OTHER_KINDS])
def test_the_file_repeats_pytorch(name, variant, exported):
    needs_runtime(variant)
    info = read_info(exported(name, variant))
    parity, limit = info.variant.parity, LIMITS[info.variant.precision]
    assert parity["max_abs_difference"] < limit.difference * max(limit.least_output, parity["largest_output"])
    assert parity["alone_or_in_batch"] == 0


@pytest.mark.parametrize("variant", EDGE_VARIANTS)
@pytest.mark.parametrize("kind", ["classification", *OTHER_KINDS])
def test_the_printed_script_decides_as_compress_does(kind, variant, exported):
    needs_runtime(variant)
    folder = exported("bert" if kind == "classification" else kind, variant)
    typed, given = typed_and_given(kind, read_info(folder).task)
    agrees(kind, run_readme(folder, *typed), compress.open(folder).predict(given, batch=1))
