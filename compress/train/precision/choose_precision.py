"""The precision of a training: what the recipe says, or what is faster here, with the reason.

A stopwatch decides once for each machine and shape of training. Its choice is kept, so that another load of the machine
does not change the precision, and with it the weights, of the next run.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from compress.environment import describe_cpu
from compress.environment.cpu import Cpu
from compress.storage.atomic_write import atomic_write
from compress.storage.cache_folder import cache_folder

BF16_GAIN = 1.2
"""How many times faster bf16 must be on a CPU: some have the instructions and multiply fp32 faster, and below that the
rounding is not worth its gain."""

PRODUCT_TURNS = 10

FOLDER = "precision"
"""Of kept choices, in the cache folder."""

_IS_ALWAYS_TRIED: ContextVar[bool] = ContextVar("is_always_tried", default=False)


class PrecisionChoice(BaseModel):
    """A precision of trainings, and why it is that one."""

    model_config = ConfigDict(frozen=True)

    precision: str
    reason: str | None = None
    """None where the recipe says so."""


class KeptChoice(PrecisionChoice):
    """The content of a file."""

    schema_version: Literal[1] = 1
    precision: Literal["fp32", "bf16"]
    key: Mapping[str, Any]
    """The machine and the shape; the file is named by its digest."""


class Trial(Protocol):
    """Times whole updates of one training in both precisions; `PrecisionTrial` implements it."""

    def key(self) -> Mapping[str, Any]:
        """Return what the gain depends on besides the machine."""

    def updates(self) -> int:
        """Return how many updates of each precision the training is long enough for; 0: none."""

    def gain(self, updates: int) -> float:
        """Return how many times faster updates are in bf16."""


@contextmanager
def always_tried() -> Iterator[None]:
    """Let trainings of any length try both precisions within the block, for longer ones of the same shape later."""
    token = _IS_ALWAYS_TRIED.set(True)
    try:
        yield
    finally:
        _IS_ALWAYS_TRIED.reset(token)


def is_always_tried() -> bool:
    """Return whether the current block is one of `always_tried`."""
    return _IS_ALWAYS_TRIED.get()


def choose_precision(requested: str, device: torch.device, trial: Trial | None) -> PrecisionChoice:
    """Return the requested precision, or for `auto` the faster one on the device, with the reason.

    On a CPU with bf16 instructions that is what an earlier ``trial`` of the same shape chose, else what this one does.
    A training that is too short for one, or without one, follows the products.
    """
    if requested != "auto":
        return PrecisionChoice(precision=requested)
    if device.type == "cuda":
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        reason = f"this GPU has {'' if has_bf16 else 'no '}bf16 instructions"
        return PrecisionChoice(precision="bf16" if has_bf16 else "fp32", reason=reason)
    cpu = describe_cpu()
    if cpu.has_bf16:
        return _by_trial(_machine(cpu), trial) if trial else _by_products(_machine(cpu))
    unknown = cpu.has_bf16 is None
    reason = "the instructions of this CPU are unknown" if unknown else "this CPU has no bf16 instructions"
    return PrecisionChoice(precision="fp32", reason=reason)


def _by_trial(machine: Mapping[str, Any], trial: Trial) -> PrecisionChoice:
    """Return the kept choice for a training of this shape, else that of its trial, else that of products."""
    key = {**machine, **trial.key()}
    if kept := kept_choice(key):
        return kept
    if count := trial.updates():
        return _keep(key, trial.gain(count), f"updates {{}}, {count} of each precision tried")
    return _by_products(machine)


def _by_products(machine: Mapping[str, Any]) -> PrecisionChoice:
    """Return the kept choice of products of a layer's size, else time them."""
    key = {**machine, "of": "products"}
    return kept_choice(key) or _keep(key, product_gain(), "too few updates to try both, products {}")


def _keep(key: Mapping[str, Any], gain: float, reason: str) -> PrecisionChoice:
    """Keep the choice that follows from a gain, which the ``reason`` has a place for.

    Where another process kept one meanwhile, that is returned.
    """
    if other := kept_choice(key):
        return other
    reason = reason.format(f"{gain:.2f} times as fast in bf16")
    choice = PrecisionChoice(precision="bf16" if gain >= BF16_GAIN else "fp32", reason=reason)
    keep(key, choice)
    return choice


def kept_choice(key: Mapping[str, Any]) -> PrecisionChoice | None:
    """Return the choice that was kept for a key; None without one, or where its file is damaged."""
    try:
        kept = KeptChoice.model_validate_json(_path(key).read_bytes())
    except (OSError, ValidationError):
        return None
    return PrecisionChoice(precision=kept.precision, reason=kept.reason)


def keep(key: Mapping[str, Any], choice: PrecisionChoice) -> None:
    """Keep a choice; where the cache folder cannot be written, the next training chooses again."""
    kept = KeptChoice.model_validate({**choice.model_dump(), "key": key})
    with suppress(OSError):
        atomic_write(_path(key), kept.model_dump_json(indent=2) + "\n")


def _path(key: Mapping[str, Any]) -> Path:
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    return cache_folder() / FOLDER / f"{digest[:16]}.json"


def _machine(cpu: Cpu) -> dict[str, Any]:
    """Return what speeds depend on besides the training."""
    instructions, threads = " ".join(cpu.instructions or ()), torch.get_num_threads()
    return {"cpu": cpu.model, "instructions": instructions, "threads": threads, "torch": torch.__version__}


def product_gain() -> float:
    """Return how many times faster a product of a layer's size is in bf16 than in fp32; takes about 0.1 s."""
    factors = torch.ones(512, 384), torch.ones(384, 1536)
    bf16 = factors[0].bfloat16(), factors[1].bfloat16()
    turns = [(_seconds(*factors), _seconds(*bf16)) for _ in range(PRODUCT_TURNS)]
    return min(fp32 for fp32, _ in turns) / min(bf16 for _, bf16 in turns)


def _seconds(left: Tensor, right: Tensor) -> float:
    started = time.perf_counter()
    torch.mm(left, right)
    return time.perf_counter() - started
