"""The schema of `compress label`: which rows a service answers, with which prompt, and for how much money."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from compress.recipe.field_types import (
    LABELLING,
    Flag,
    Frozen,
    Natural,
    Number,
    Positive,
    RecipeFile,
    Share,
    ShortForm,
    Weight,
    duration,
)
from compress.recipe.task_schema import Task
from compress.storage.file_names import FileName

VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
"""Names of environment variables: in capitals, so that a key that was pasted here is not taken for one."""


class Endpoint(Frozen):
    """A service with OpenAI's interface of chat completions, on the internet or on this machine."""

    url: str
    """`https://api.openai.com/v1`, `http://localhost:8000/v1`"""
    model: Annotated[str, Field(min_length=1, max_length=200)]
    key: str | None = None
    """The name of the environment variable that holds the key; null for a service without one."""
    timeout: Annotated[Positive, duration] = 60.0
    """How long to wait for an answer."""
    retries: Annotated[Natural, Field(le=20)] = 6
    """How often a request is repeated that the service did not answer: busy (429), failing (5xx), too slow."""
    structured: Flag | Literal["auto"] = "auto"
    """Whether answers are forced into a JSON schema with the labels; `auto`: unless the service refuses that."""

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("expected the address of the interface, such as https://api.openai.com/v1")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("an address has no password or query here; key names the variable that holds the key")
        try:
            parts.hostname.encode("idna")
            _ = parts.port
        except ValueError:  # UnicodeError of the name, too
            raise ValueError("expected a host and a port that can exist, such as http://localhost:8000/v1") from None
        return url.rstrip("/")

    @field_validator("key")
    @classmethod
    def _check_key(cls, key: str | None) -> str | None:
        if key is not None and not VARIABLE.fullmatch(key):
            raise ValueError("expected the name of an environment variable in capitals, never the key itself")
        return key


class Prompt(ShortForm):
    """The instructions to the service; by default a request to classify, with the labels and their meanings."""

    short_key = "instructions"
    """`prompt: Which product is this question about?`"""
    instructions: Annotated[str, Field(min_length=1)] | None = None
    """The system message; `{labels}` becomes the list of labels, which is added where it is missing, as is the form of
    the answer."""
    input: Annotated[str, Field(min_length=1)] | None = None
    """The user message; `{review}` becomes the text of the column `review`. By default the text, or each with its
    column's name."""


class Prices(Frozen):
    """What the service costs, in any one currency, for a million tokens."""

    input: Weight
    output: Weight


class LabelRecipe(RecipeFile):
    """Rows that a service answers; task and endpoint are required."""

    recipe_kind = LABELLING
    minimum: ClassVar = {"task": "…", "endpoint": "{url: …, model: …}"}
    version: Literal[1] = 1
    name: FileName = "labels"
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**31)] = 0
    """Decides which texts are held back."""
    task: Task
    """As in recipes of `compress run`; the rows of `data.train` are labelled, and `limit` applies to them."""
    endpoint: Endpoint
    prompt: Prompt = Prompt()
    meanings: Mapping[str, str] = {}
    """What a label means, where its name does not say it."""
    scores: tuple[Number, Number] | None = None
    """The lowest and the highest score (regression)."""
    samples: Annotated[Natural, Field(le=100)] = 1
    """Answers to each text; the shares of several are its soft labels."""
    temperature: Annotated[Weight, Field(le=2.0)] | None = None
    """By default 0 for one sample, and 1 for several, which would be equal at 0."""
    answer_tokens: Annotated[Natural, Field(le=100_000)] = 256
    """Longest answer in tokens; models that think before they answer need more."""
    attempts: Annotated[Natural, Field(le=100)] = 3
    """How often a sample is asked for until its answer is one of the labels; then it counts as unanswered."""
    concurrency: Annotated[Natural, Field(le=256)] = 8
    """Most requests at the same time."""
    requests_per_minute: Annotated[Natural, Field(le=1_000_000)] | None = None
    prices: Prices | None = None
    limit: Positive | None = None
    """The most that all answers to these rows may cost, those of earlier runs included."""
    held_out: Share = 0.1
    """The share of texts whose answers become test.jsonl, on which agreement with the service is measured."""

    @property
    def sampling_temperature(self) -> float:
        """The temperature given, or the default for this number of samples."""
        return self.temperature if self.temperature is not None else float(self.samples > 1)

    @model_validator(mode="after")
    def _check_money(self) -> LabelRecipe:
        if self.limit is not None and self.prices is None:
            raise ValueError("limit needs prices: {input: …, output: …}, the service's for a million tokens")
        return self

    @model_validator(mode="after")
    def _check_samples(self) -> LabelRecipe:
        if self.samples > 1 and self.temperature == 0:
            raise ValueError(f"{self.samples} samples at temperature 0 are equal; leave temperature out, or one sample")
        return self

    @field_validator("scores")
    @classmethod
    def _check_scores(cls, scores: Any) -> Any:
        if scores is not None and scores[0] >= scores[1]:
            raise ValueError("expected the lowest and the highest score, such as [1, 5]")
        return scores
