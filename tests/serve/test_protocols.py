"""Every protocol, with the clients that people have, answers what `predict` does."""

import json
import math
import subprocess
from dataclasses import replace

import numpy as np
import pytest

import compress
from compress.serve.protocols.text_embeddings_inference import _check_each
from compress.serve.service import Refusal, Service

INPUTS = {
    "classification": "a fine film",
    "regression": "a fine film",
    "multi_label": "a fine film",
    "token_classification": "a fine film",
    "question_answering": ["is it good", "the plot is dull"],
    "multiple_choice": ["is it good", "good", "bad", "dull"],
    "ranking": ["good", "a fine film", "bad"],
    "similarity": ["good", "fine"],
    "retrieval": "a good film",
}


def predicted(folder, given):
    return compress.open(folder).predict([given if isinstance(given, str) else tuple(given)], batch=1)[0]


def close(found, expected):
    """Whether two answers are equal, numbers within rounding."""
    if isinstance(expected, float):
        return found == pytest.approx(expected, abs=1e-5)
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(close(found[name], expected[name]) for name in expected)
    if isinstance(expected, (list, tuple)):
        return len(found) == len(expected) and all(map(close, found, expected))
    return found == expected


@pytest.mark.parametrize("kind", sorted(INPUTS))
def test_plain_answers_are_those_of_predict(kind, service_of, exported):
    given = INPUTS[kind]
    answer = service_of(kind).client.post(f"/models/{kind}/predict", json={"texts": [given, given]})
    assert answer.status_code == 200, answer.text
    expected = predicted(exported(kind), given)
    assert all(close(each, expected) for each in answer.json()["answers"])


def test_curl(service_of):
    address = service_of("classification").address
    command = ["curl", "-s", f"{address}/models/classification/predict", "-d", '{"texts": ["a fine film"]}']
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["answers"][0]["label"] in ("bad", "good")


def test_probabilities_are_asked_for(service_of):
    body = {"texts": ["good"], "probabilities": True}
    [answer] = service_of("classification").client.post("/models/classification/predict", json=body).json()["answers"]
    assert set(answer["probabilities"]) == {"bad", "good"}


@pytest.mark.parametrize("wrong", [5, None, {"a": "b"}, [], ["good", 5]])
def test_a_row_that_is_no_text_fails_alone(wrong, service_of):
    client = service_of("classification").client
    answer = client.post("/models/classification/predict", json={"texts": ["good", wrong]})
    assert answer.status_code == 200, answer.text
    first, second = answer.json()["answers"]
    assert (list(second), "label" in first) == (["error"], True)
    assert client.post("/models/classification/predict", json={"texts": [wrong]}).status_code == 422


def test_rows_that_are_no_texts_count(service_of):
    answer = service_of("classification").client.post("/models/classification/predict", json={"texts": [1] * 2000})
    assert (answer.status_code, "may hold 1,024 texts" in answer.text) == (413, True)


def test_one_bad_row_fails_alone(service_of):
    body = {"texts": [["a", "b", "c"], "good", ""]}
    wrong, right, empty = (
        service_of("classification").client.post("/models/classification/predict", json=body).json()["answers"]
    )
    assert "error" in wrong
    assert right["label"] in ("bad", "good")
    assert empty == {"label": None, "probability": None, "reason": "no text"}


@pytest.mark.parametrize("binary", [False, True])
def test_tritonclient(binary, service_of, exported):
    triton = pytest.importorskip("tritonclient.http")
    client = triton.InferenceServerClient(f"127.0.0.1:{service_of('classification').port}")
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("classification")
    assert client.get_model_metadata("classification")["inputs"][0]["datatype"] == "BYTES"
    texts = np.array(["a fine film", "so dull", "中 é"], object)
    given = triton.InferInput("text", [3], "BYTES")
    given.set_data_from_numpy(texts, binary_data=binary)
    wanted = [triton.InferRequestedOutput(name, binary_data=binary) for name in ("label", "probability")]
    found = client.infer("classification", [given], outputs=wanted)
    expected = compress.open(exported("classification")).predict(list(texts), batch=1)
    labels = [label.decode() if isinstance(label, bytes) else label for label in found.as_numpy("label")]
    assert labels == [row["label"] for row in expected]
    assert np.allclose(found.as_numpy("probability"), [row["probability"] for row in expected], atol=1e-5)
    client.close()


def test_tritonclient_reads_columns_of_a_pair(service_of, exported):
    triton = pytest.importorskip("tritonclient.http")
    client = triton.InferenceServerClient(f"127.0.0.1:{service_of('similarity').port}")
    inputs = []
    for name, text in (("sentence1", "good"), ("sentence2", "fine")):
        inputs.append(triton.InferInput(name, [1], "BYTES"))
        inputs[-1].set_data_from_numpy(np.array([text], object))
    found = client.infer("similarity", inputs)
    assert found.as_numpy("score")[0] == pytest.approx(
        predicted(exported("similarity"), ["good", "fine"])["score"], abs=1e-5
    )
    client.close()


def test_tritonclient_gets_embeddings(service_of, exported):
    triton = pytest.importorskip("tritonclient.http")
    client = triton.InferenceServerClient(f"127.0.0.1:{service_of('retrieval').port}")
    given = triton.InferInput("text", [2], "BYTES")
    given.set_data_from_numpy(np.array(["good", "a fine film"], object))
    found = client.infer("retrieval", [given]).as_numpy("embedding")
    expected = [predicted(exported("retrieval"), text)["embedding"] for text in ("good", "a fine film")]
    assert np.allclose(found, expected, atol=1e-5)
    client.close()


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("classification", "probability", np.nan),
        ("retrieval", "embedding", np.nan),
        ("question_answering", "start", -1),
    ],
)
def test_an_empty_text_changes_no_type(kind, name, expected, binary, service_of):
    triton = pytest.importorskip("tritonclient.http")
    client = triton.InferenceServerClient(f"127.0.0.1:{service_of(kind).port}")
    columns = ("question", "context") if kind == "question_answering" else ("text",)
    given = [triton.InferInput(column, [2], "BYTES") for column in columns]
    for each in given:
        each.set_data_from_numpy(np.array(["good", ""], object))
    output = client.infer(kind, given, outputs=[triton.InferRequestedOutput(name, binary_data=binary)]).as_numpy(name)
    assert output.dtype == (np.int64 if expected == -1 else np.float32)
    assert np.array_equal(output[1], np.full_like(output[1], expected), equal_nan=expected != -1)
    assert not np.isnan(output[0]).any()
    client.close()


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        ("similarity", {"question": "good", "context": "fine"}),
        ("question_answering", {"source_sentence": "good", "sentences": ["fine"]}),
        ("multiple_choice", {"source_sentence": "good", "sentences": ["fine"]}),
        ("ranking", {"text": "good", "text_pair": "fine"}),
        ("question_answering", {"text": "good", "text_pair": "fine"}),
    ],
)
def test_inference_client_is_refused_what_a_model_does_not_answer(kind, inputs, service_of):
    answer = service_of(kind).client.post(f"/models/{kind}", json={"inputs": inputs})
    assert answer.status_code == 422
    assert f"a model of {kind}" in answer.text


def test_infer_gives_embeddings_of_single_texts_where_two_are_compared(service_of, exported):
    client = service_of("similarity").client
    tensor = {"name": "texts", "datatype": "BYTES", "shape": [2], "data": ["good", "a fine film"]}
    (output,) = client.post("/v2/models/similarity/infer", json={"inputs": [tensor]}).json()["outputs"]
    assert output["name"] == "embedding"
    expected = [predicted(exported("similarity"), text)["embedding"] for text in tensor["data"]]
    np.testing.assert_allclose(np.reshape(output["data"], output["shape"]), expected, atol=1e-5)
    pairs = tensor | {"shape": [1, 2]}
    (output,) = client.post("/v2/models/similarity/infer", json={"inputs": [pairs]}).json()["outputs"]
    assert output["name"] == "score"


@pytest.mark.parametrize(
    ("kind", "inputs", "message"),
    [
        ("question_answering", {"question": ["good", "fine"], "context": "fine"}, "inputs.question is one text"),
        ("similarity", {"source_sentence": ["good"], "sentences": ["fine"]}, "inputs.source_sentence is one text"),
        ("similarity", {"source_sentence": "good", "sentences": "fine"}, "inputs.sentences is a list of texts"),
        ("token_classification", {"text": "good", "text_pair": "fine"}, "token_classification reads no pairs"),
    ],
)
def test_a_text_is_no_list_and_a_list_is_no_text(kind, inputs, message, service_of):
    answer = service_of(kind).client.post(f"/models/{kind}", json={"inputs": inputs})
    assert answer.status_code == 422
    assert message in answer.text


@pytest.mark.parametrize("length", ["-1", "x", "99", "1" * 5000])
def test_a_length_of_the_json_part_that_is_none(length, service_of):
    headers = {"Inference-Header-Content-Length": length}
    answer = service_of("classification").client.post("/v2/models/classification/infer", content=b"{}", headers=headers)
    assert (answer.status_code, "expected the length of the JSON part" in answer.json()["error"]) == (400, True)


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_openai(encoding, service_of, exported):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{service_of('retrieval').address}/v1", api_key="any")
    assert [model.id for model in client.models.list()] == ["retrieval"]
    found = client.embeddings.create(model="retrieval", input=["good", "a fine film"], encoding_format=encoding)
    expected = predicted(exported("retrieval"), "a fine film")["embedding"]
    vector = found.data[1].embedding
    if isinstance(vector, str):
        import base64

        vector = np.frombuffer(base64.b64decode(vector), np.float32)
    assert np.allclose(vector, expected, atol=1e-5)
    assert found.usage.total_tokens > 0


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("retrieval", {"input": [[1, 2]]}, "input holds tokens"),
        ("retrieval", {"input": [1, 2]}, "input holds tokens"),
        ("retrieval", {"input": ""}, "input is empty"),
        ("retrieval", {"input": [" "]}, "input 1 is an empty text"),
        ("retrieval", {"input": "a", "dimensions": 3}, "embeddings have 8 dimensions"),
        ("classification", {"input": "a"}, "makes no embeddings"),
    ],
)
def test_openai_refusals(kind, body, message, service_of):
    answer = service_of(kind).client.post("/v1/embeddings", json={"model": kind, **body})
    assert answer.status_code in (400, 422)
    assert message in answer.json()["error"]["message"]


def test_inference_client_classifies(service_of, exported):
    hub = pytest.importorskip("huggingface_hub")
    client = hub.InferenceClient(model=service_of("classification").address)
    found = client.text_classification("a fine film")
    expected = predicted(exported("classification"), "a fine film")
    assert found[0].label == expected["label"]
    assert found[0].score == pytest.approx(expected["probability"], abs=1e-5)


def test_inference_client_embeds(service_of, exported):
    hub = pytest.importorskip("huggingface_hub")
    found = hub.InferenceClient(model=service_of("retrieval").address).feature_extraction("a good film")
    assert np.allclose(np.ravel(found), predicted(exported("retrieval"), "a good film")["embedding"], atol=1e-5)


def test_inference_client_answers_questions(service_of, exported):
    hub = pytest.importorskip("huggingface_hub")
    client = hub.InferenceClient(model=service_of("question_answering").address)
    found = client.question_answering(question="is it good", context="the plot is dull")
    expected = predicted(exported("question_answering"), ["is it good", "the plot is dull"])
    assert found.answer == expected["answer"]


def test_inference_client_tags_words(service_of, exported):
    hub = pytest.importorskip("huggingface_hub")
    found = hub.InferenceClient(model=service_of("token_classification").address).token_classification("a fine  film")
    expected = predicted(exported("token_classification"), "a fine  film")["entities"]
    assert [each.entity_group for each in found] == [each["type"] for each in expected]
    assert all("a fine  film"[each.start : each.end] == each.word for each in found)


def test_inference_client_compares_sentences(service_of, exported):
    hub = pytest.importorskip("huggingface_hub")
    client = hub.InferenceClient(model=service_of("similarity").address)
    found = client.sentence_similarity("good", other_sentences=["fine", "bad"])
    expected = [predicted(exported("similarity"), ["good", other])["score"] for other in ("fine", "bad")]
    assert np.allclose(found, expected, atol=1e-5)


class TestTextEmbeddingsInference:
    """As its own server answers."""

    def test_predict(self, service_of, exported):
        client = service_of("classification").client
        one = client.post("/predict", json={"inputs": "a fine film"}).json()
        expected = predicted(exported("classification"), "a fine film")
        assert [sorted(each) for each in one] == [["label", "score"]] * 2
        assert one[0]["label"] == expected["label"]
        assert one[0]["score"] == pytest.approx(expected["probability"], abs=1e-5)
        assert client.post("/predict", json={"inputs": [["a fine film"], ["so dull"]]}).json()[0] == one
        pair = client.post("/predict", json={"inputs": ["a", "b"]})
        assert pair.status_code in (200, 422)

    def test_embed(self, service_of, exported):
        found = service_of("retrieval").client.post("/embed", json={"inputs": ["good", "a good film"]}).json()
        assert np.allclose(found[1], predicted(exported("retrieval"), "a good film")["embedding"], atol=1e-5)
        assert len(service_of("retrieval").client.post("/embed", json={"inputs": "good"}).json()) == 1

    def test_embeddings_are_normalized_where_requested(self, service_of, monkeypatch):
        service = service_of("retrieval")
        body = {"inputs": "good", "normalize": False}
        refusal = service.client.post("/embed", json=body)
        assert (refusal.status_code, "itself normalizes" in refusal.text) == (422, True)

        async def answers(*_):
            return [{"embedding": [3.0, 4.0]}, {"embedding": [0.0, 0.0]}]

        monkeypatch.setattr(Service, "all_answers", answers)
        body["inputs"] = ["good", "fine"]
        assert service.client.post("/embed", json=body).json() == [[3.0, 4.0], [0.0, 0.0]]
        assert service.client.post("/embed", json=body | {"normalize": True}).json() == [[0.6, 0.8], [0.0, 0.0]]

    def test_rerank(self, service_of, exported):
        body = {"query": "good", "texts": ["a fine film", "bad", "dull"], "return_text": True, "raw_scores": True}
        found = service_of("ranking").client.post("/rerank", json=body).json()
        expected = predicted(exported("ranking"), ["good", "a fine film", "bad", "dull"])
        assert [each["index"] for each in found] == expected["order"]
        assert found[0]["text"] == body["texts"][found[0]["index"]]
        shares = service_of("ranking").client.post("/rerank", json=body | {"raw_scores": False}).json()
        assert all(0.0 < each["score"] < 1.0 for each in shares)

    @pytest.mark.parametrize(
        ("kind", "path", "body", "status"),
        [
            ("retrieval", "/predict", {"inputs": "a"}, 424),
            ("classification", "/embed", {"inputs": "a"}, 424),
            ("classification", "/rerank", {"query": "a", "texts": ["b"]}, 424),
            ("ranking", "/predict", {"inputs": ["a", "b"]}, 424),
            ("multiple_choice", "/predict", {"inputs": ["a", "b"]}, 424),
            ("classification", "/predict", {"inputs": " "}, 400),
            ("classification", "/predict", {"inputs": "good " * 100}, 413),
            ("classification", "/predict", {"texts": "good"}, 422),
            ("retrieval", "/embed", {"inputs": []}, 422),
        ],
    )
    def test_refusals(self, kind, path, body, status, service_of):
        answer = service_of(kind).client.post(path, json=body)
        assert answer.status_code == status
        assert set(answer.json()) == {"error", "error_type"}

    def test_a_prompt_counts(self, exported):
        model, text = compress.open(exported("retrieval")), "good " * 25
        _check_each(model, [text])
        with pytest.raises(Refusal, match="must have less than 33 tokens"):
            _check_each(replace(model, prompt="a fine film or a bad one: "), [text])

    def test_raw_scores_of_labels(self, service_of):
        client = service_of("multi_label").client
        shares, raw = (
            {each["label"]: each["score"] for each in client.post("/predict", json=body).json()}
            for body in ({"inputs": "good"}, {"inputs": "good", "raw_scores": True})
        )
        for label, share in shares.items():
            assert raw[label] == pytest.approx(math.log(share / (1 - share)), abs=1e-3)

    def test_truncate(self, service_of):
        body = {"inputs": "good " * 100, "truncate": True}
        assert service_of("classification").client.post("/predict", json=body).status_code == 200

    @pytest.mark.parametrize(
        ("kind", "name"), [("classification", "classifier"), ("retrieval", "embedding"), ("ranking", "reranker")]
    )
    def test_info(self, kind, name, service_of):
        found = service_of(kind).client.get("/info").json()
        assert list(found["model_type"]) == [name]
        assert found["max_input_length"] == 32


@pytest.mark.parametrize("kind", sorted(INPUTS))
def test_the_description_is_of_this_model(kind, service_of):
    found = service_of(kind).client.get("/openapi.json").json()
    assert f"/models/{kind}/predict" in found["paths"]
    for path, methods in found["paths"].items():
        for method in methods:
            assert service_of(kind).client.request(method, path).status_code != 404, path
    if kind == "classification":
        assert '"enum": ["bad", "good"]' in json.dumps(found)


def test_a_page_to_type_a_text_into(service_of):
    client = service_of("classification").client
    assert "<textarea" in client.get("/").text
    for name in ("app.js", "show.js", "style.css"):
        assert client.get(f"/page/{name}").status_code == 200
    assert client.get("/page/secret").status_code == 404
