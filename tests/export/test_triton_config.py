"""config.pbtxt describes the graph beside it, in the fields that Triton knows."""

import json
import re
import subprocess

import onnxruntime
import pytest

from benchmarks.distill_throughput.environments import Environment, NotInstalled
from compress.export.other_tools import FILE
from compress.model_folder.model_info import TaskInfo
from tests.other_tools.tool_environments import installed
from tests.variant_builder import build

pytestmark = pytest.mark.slow
ENVIRONMENT = Environment("triton-config", ("protobuf==7.36.2",), no_dependencies=("tritonclient==2.73.0",))

PARSE = """
import importlib.util, json, sys
from google.protobuf import text_format
from google.protobuf.json_format import MessageToDict
folder = importlib.util.find_spec("tritonclient").submodule_search_locations[0]
spec = importlib.util.spec_from_file_location("model_config_pb2", folder + "/grpc/model_config_pb2.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
config = text_format.Parse(open(sys.argv[1]).read(), module.ModelConfig())
print(json.dumps(MessageToDict(config, preserving_proto_field_name=True)))
"""
"""Reads the file by Triton's own messages, without the rest of its client, which wants gRPC."""

TASK = TaskInfo(name="alike", kind="similarity", text=("one", "other"), metric="spearman", max_length=32)
TYPES = {"TYPE_INT64": "tensor(int64)", "TYPE_FP32": "tensor(float)"}


@pytest.fixture(scope="module")
def folders(tiny_model, tiny_folder, tmp_path_factory):
    """Exports: a classifier, an embedding model, tags, in fp32 and INT8."""
    models = {
        "classifier": tiny_folder("bert"),
        "embeddings": tiny_folder(tiny_model("distilbert", head="ForSentenceEmbedding"), TASK),
        "spans": tiny_folder(
            tiny_model("roberta", labels=("start", "end"), head="ForQuestionAnswering"),
            TASK.model_copy(update={"kind": "question_answering"}),
        ),
    }
    exports = {}
    for name, folder in models.items():
        exports[name, "fp32"] = build_in(tmp_path_factory, "onnx-fp32", folder)
        exports[name, "int8"] = build_in(tmp_path_factory, "onnx-int8", exports[name, "fp32"])
    return exports


def build_in(factory, variant, source):
    work = factory.mktemp("export")
    build(variant, source, work)
    return work


def shown(shape):
    """A shape as Triton has it: without the batch, -1 for a free size."""
    return [size if isinstance(size, int) else -1 for size in shape[1:]]


NAMES = [(name, precision) for name in ("classifier", "embeddings", "spans") for precision in ("fp32", "int8")]


@pytest.mark.parametrize(("name", "precision"), NAMES)
def test_inputs_and_outputs_are_those_of_the_graph(name, precision, folders):
    folder = folders[name, precision]
    text = (folder / FILE).read_text()
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    for role, values in (("input", session.get_inputs()), ("output", session.get_outputs())):
        listed = re.findall(
            rf'^{role} \[ {{ name: "(\w+)" data_type: (\w+) dims: \[ (.*?) \] }} \]$', text, re.MULTILINE
        )
        expected = [(each.name, each.type, shown(each.shape)) for each in values if each.name != "last_hidden_state"]
        assert [(key, TYPES[kind], json.loads(f"[{dims}]")) for key, kind, dims in listed] == expected


@pytest.mark.parametrize(("name", "precision"), NAMES)
def test_triton_reads_it(name, precision, folders):
    try:
        python = installed(ENVIRONMENT)
    except NotInstalled as error:
        pytest.skip(str(error))
    command = [str(python), "-c", PARSE, str(folders[name, precision] / FILE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    config = json.loads(done.stdout)
    assert config["backend"] == "onnxruntime"
    assert [each["name"] for each in config["input"]][:2] == ["input_ids", "attention_mask"]
    # The batch is part of what dynamic INT8 computes: the server must not make batches of its own.
    assert config["max_batch_size"] == (1 if precision == "int8" else 32)
    assert ("dynamic_batching" in config) is (precision == "fp32")
    assert ("instance_group" in config) is (precision == "int8")
