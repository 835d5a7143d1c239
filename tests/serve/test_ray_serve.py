"""The application for Ray Serve, on a local Ray."""

import httpx2 as httpx
import pytest

import compress
from compress.serve.server import listen


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_an_application_answers_as_the_service_does(model) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed (the extra `ray`)")
    serve = pytest.importorskip("ray.serve", reason="Ray Serve is not installed (pip install 'ray[serve]')")
    from compress.serve.ray_app import build

    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        serve.run(build({"folder": str(model), "name": "films"}))
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            answer = client.post("/models/films/predict", json={"texts": ["a fine film"]})
            wrong = client.post("/models/films/predict", content=b"{")
            ready = client.get("/v2/models/films/ready")
    finally:
        serve.shutdown()
        ray.shutdown()
    expected = compress.open(model).predict(["a fine film"], batch=1)
    assert answer.json()["answers"][0]["label"] == expected[0]["label"]
    assert (answer.status_code, wrong.status_code, ready.status_code) == (200, 400, 200)
