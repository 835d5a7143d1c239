"""Services that others would put around a model: written by hand, or with a server that batches requests.

Each is a program of one file, run by the Python of an environment of its own, which names a FOLDER, a ROUTE and a PORT.
It takes `{"texts": [TEXT]}` and answers `{"answers": [ANSWER]}`, on one thread of the model, as `compress serve` does.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class OtherServer:
    """A service that is compared."""

    program: str
    package: str | None = None
    """What its environment holds beside the base install; None: the benchmark's own environment runs it."""
    reads_torch: bool = False
    """Whether it is given the model in PyTorch, as people run it before they compress it."""


FASTAPI = """
import os, uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
folder, path, port = (os.environ[name] for name in ("FOLDER", "ROUTE", "PORT"))
{model}

class Texts(BaseModel):
    texts: list[str]

app = FastAPI()

@app.post(path)
def predict(given: Texts):
    return {{"answers": answer(given.texts)}}

uvicorn.run(app, port=int(port), log_level="error")
"""

SAME_FILE = """
import compress
model = compress.open(folder)
answer = lambda texts: model.predict(texts, batch=1)
"""

PIPELINE = """
import compress.models, torch
from transformers import pipeline
torch.set_num_threads(1)
answer = pipeline("text-classification", folder, device="cpu")
"""

LITSERVE = """
import os, compress, litserve
folder, path, port = (os.environ[name] for name in ("FOLDER", "ROUTE", "PORT"))

class Model(litserve.LitAPI):
    def setup(self, device):
        self.model = compress.open(folder)

    def decode_request(self, request):
        return request["texts"][0]

    def batch(self, texts):
        return list(texts)

    def predict(self, texts):
        return self.model.predict(texts, batch=len(texts))

    def unbatch(self, answers):
        return answers

    def encode_response(self, answer):
        return {"answers": [answer]}

if __name__ == "__main__":
    api = Model(max_batch_size=16, batch_timeout=0.001, api_path=path)
    litserve.LitServer(api, accelerator="cpu").run(port=int(port), log_level="error", generate_client_file=False)
"""

MOSEC = """
import os, sys, compress, mosec
folder, path, port = (os.environ[name] for name in ("FOLDER", "ROUTE", "PORT"))
sys.argv[1:] = ["--port", port, "--log-level", "error"]

class Model(mosec.Worker):
    def __init__(self):
        self.model = compress.open(folder)

    def forward(self, requests):
        texts = [request["texts"][0] for request in requests]
        return [{"answers": [answer]} for answer in self.model.predict(texts, batch=len(texts))]

if __name__ == "__main__":
    server = mosec.Server()
    server.append_worker(Model, num=1, max_batch_size=16, max_wait_time=1, route=path)
    server.run()
"""

BENTOML = """
import os, sys
if __name__ == "__main__":
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    module = os.path.basename(__file__).removesuffix(".py")
    words = ["-m", "bentoml", "serve", f"{module}:Model", "--port", os.environ["PORT"]]
    os.execv(sys.executable, [sys.executable, *words])
import bentoml, compress

@bentoml.service(workers=1)
class Model:
    def __init__(self):
        self.model = compress.open(os.environ["FOLDER"])

    @bentoml.api(batchable=True, max_batch_size=16, max_latency_ms=1000, route=os.environ["ROUTE"])
    def predict(self, texts: list[str]) -> list[dict]:
        return self.model.predict(texts, batch=len(texts))
"""

OTHER_SERVERS: Mapping[str, OtherServer] = {
    "FastAPI, pipeline": OtherServer(FASTAPI.format(model=PIPELINE), "fastapi", reads_torch=True),
    "FastAPI": OtherServer(FASTAPI.format(model=SAME_FILE), "fastapi"),
    "LitServe": OtherServer(LITSERVE, "litserve"),
    "mosec": OtherServer(MOSEC, "mosec"),
    "BentoML": OtherServer(BENTOML, "bentoml"),
}
