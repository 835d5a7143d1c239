"""Models without attention in numpy alone: a few lookups and two products for each text, without a session.

For one short text that is faster than ONNX Runtime, whose every operator costs a microsecond; rows of a batch are read
one after the other. In the file the weights of pieces are multiplied into their vectors, and tables of 8 and 4 bits are
unpacked when it is opened.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compress.errors import ModelError
from compress.model_folder.model_info import VariantInfo
from compress.ngram_hash import HASHES, multipliers, primes
from compress.runtime.model_formats import ModelFile
from compress.runtime.predictor import Placement, check_inputs, describe_predictor, load_failure
from compress.storage.safetensors_file import read_arrays
from compress.tasks.base import Arrays

Array = NDArray[np.float32]

SCALE, PACKED = ".scale", ".packed"
"""Ends of the names of an array's scales, and of an array of 4 bits in place of its own name."""
BLOCK = 32
"""Values of 4 bits that share a scale."""


DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, MemoryError)
"""What reading a damaged file raises."""


class Convolution(NamedTuple):
    """A depthwise convolution, and the product that follows it."""

    kernel: Array
    """(tokens, width)."""
    kernel_bias: Array
    pointwise: Array
    bias: Array


class Head(NamedTuple):
    """A hidden layer, and the output layer that reads its input too."""

    dense: Array
    dense_bias: Array
    output: Array
    output_bias: Array

    def __call__(self, vectors: Array) -> Array:
        """Return outputs (…, outputs) of vectors (…, inputs)."""
        hidden = vectors @ self.dense
        hidden += self.dense_bias
        np.maximum(hidden, 0, out=hidden)
        outputs: Array = np.concatenate((vectors, hidden), axis=-1) @ self.output
        return outputs + self.output_bias


class NumpyPredictor:
    """The tables and the head of a model without attention; calls change nothing in it."""

    inputs: tuple[str, ...] = ("input_ids", "attention_mask")

    def __init__(self, model_file: ModelFile, placement: Placement, variant: VariantInfo) -> None:
        self._placement, self._variant = placement, variant
        try:
            config = json.loads((model_file.file.parent / "config.json").read_bytes())
            self._read(unpacked(read_arrays(model_file.file)), config)
        except DAMAGED as error:
            raise load_failure("numpy", model_file.file, error) from error

    def _read(self, arrays: Mapping[str, Array], config: Mapping[str, Any]) -> None:
        self._pieces = arrays["pieces"]
        self._is_text = np.ones(len(self._pieces), bool)
        self._is_text[config["special_token_ids"] or []] = False
        self._separator = config["sep_token_id"] if config["pairs"] else None
        self._longest = int(config["ngrams"])
        if self._longest > 1:
            buckets = int(config["buckets"])
            self._pool, self._pool_weights = arrays["ngrams"], arrays["ngram_weights"]
            self._primes = np.array(primes(buckets), np.int32)
            self._hash_parts = hash_parts(len(self._pieces), self._longest, buckets)
        self._expansion = arrays.get("expansion")
        self._convolutions = [
            Convolution(*(arrays[f"convolution.{depth}.{name}"] for name in Convolution._fields))
            for depth in range(int(config["num_hidden_layers"]))
        ]
        self._projection = arrays.get("projection")
        self._head = Head(*(arrays[name] for name in Head._fields)) if "dense" in arrays else None
        self._is_tagger = config["architectures"][0].endswith("ForTokenClassification")

    def predict(self, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
        """Run one padded batch, row by row."""
        check_inputs(self.inputs, arrays)
        rows, masks = np.asarray(arrays["input_ids"]), np.asarray(arrays["attention_mask"])
        if rows.shape != masks.shape or rows.ndim != 2 or not rows.size:
            shown = f"input_ids {rows.shape}, attention_mask {masks.shape}"
            raise ModelError(f"the model takes arrays of (rows, tokens), all of one shape and not empty; got {shown}.")
        try:
            outputs = [self._run(ids, mask) for ids, mask in zip(rows, masks, strict=True)]
        except IndexError as error:
            raise ModelError(f"a row has a piece outside of the {len(self._pieces):,} that this model has.") from error
        batch = outputs[0][None] if len(outputs) == 1 else np.stack(outputs)
        return {"logits" if self._head else "sentence_embedding": batch}

    def describe(self) -> dict[str, Any]:
        """Describe the configuration."""
        return describe_predictor(self._variant, self._placement, version=np.__version__, options={})

    def _run(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> Array:
        """Return the outputs of one row."""
        content = self._is_text.take(ids) & (mask != 0)
        if self._head is None:
            return self._embedding(ids, content, max(1, int(np.count_nonzero(mask))))
        if self._is_tagger:
            return self._head(self._states(ids, content))
        if self._separator is None:
            return self._head(self._text(ids, content))
        first = np.cumsum(ids == self._separator) < 1
        left, right = self._text(ids, content & first), self._text(ids, content & ~first)
        return self._head(np.concatenate((left, right, np.abs(left - right), left * right)))

    def _text(self, ids: NDArray[np.int64], content: NDArray[np.bool_]) -> Array:
        """Return the mean of a text's vectors and the maximum of its pieces'; zeros of one without pieces."""
        if self._convolutions:
            states = self._states(ids, content)[content]
            total = states.sum(axis=0)
        else:
            states, total = self._pieces_and_total(ids, content)
        if not len(states):
            return np.zeros(2 * states.shape[1], np.float32)
        return np.concatenate((total / np.float32(len(states)), np.maximum.reduce(states, 0)))

    def _pieces_and_total(self, ids: NDArray[np.int64], content: NDArray[np.bool_]) -> tuple[Array, Array]:
        """Return the vectors of pieces (tokens, width), and the sum of them and of all n-grams."""
        runs = [ids[run] for run in _runs(content)]
        pieces = self._pieces.take(runs[0] if len(runs) == 1 else ids[content], 0)
        total: Array = np.add.reduce(pieces, 0)
        for run in runs:
            if self._longest > 1 and len(run) > 1:
                hashes = np.concatenate(self._hashes(run)) % self._primes
                weights = self._pool_weights.take(hashes[:, -1], 0)
                total = total + weights.ravel() @ self._pool.take(hashes[:, : HASHES - 1].ravel(), 0)
        return (pieces, total) if self._expansion is None else (pieces @ self._expansion, total @ self._expansion)

    def _states(self, ids: NDArray[np.int64], content: NDArray[np.bool_]) -> Array:
        """Return the vectors of the tokens (tokens, hidden), zeros where ``content`` is false."""
        states = self._pieces.take(ids, 0) * content[:, None]
        for run in _runs(content) if self._longest > 1 else ():
            for size, sums in enumerate(self._hashes(ids[run]), start=2):
                hashes = sums % self._primes
                weights = self._pool_weights.take(hashes[:, -1], 0)[..., None]
                vectors = self._pool.take(hashes[:, : HASHES - 1], 0)
                states[run.start + size - 1 : run.stop] += (vectors * weights).sum(axis=1)
        if self._expansion is not None:
            states = states @ self._expansion
        for layer in self._convolutions:
            states = (states + _convolved(states, layer)) * content[:, None]
        return states

    def _hashes(self, run: NDArray[np.int64]) -> list[NDArray[np.int32]]:
        """Return what is hashed (n-grams, 3): all bigrams of a run of pieces, all trigrams, and so on."""
        parts = self._hash_parts.take(run, 0)
        total, found = parts[:, :HASHES], []
        for back in range(1, min(self._longest, len(run))):
            total = total[1:] + parts[:-back, back * HASHES : (back + 1) * HASHES]
            found.append(total)
        return found

    def _embedding(self, ids: NDArray[np.int64], content: NDArray[np.bool_], count: int) -> Array:
        if self._convolutions:
            total = self._states(ids, content).sum(axis=0)
        else:
            _, total = self._pieces_and_total(ids, content)
        text: Array = total / np.float32(count)
        if self._projection is not None:
            text = text @ self._projection
        unit: Array = text / np.float32(max(float(np.linalg.norm(text)), 1e-12))
        return unit


def hash_parts(pieces: int, longest: int, buckets: int) -> NDArray[np.int32]:
    """Return what each piece adds to the hashes of an n-gram as its last, its last but one … (pieces, 3 · longest)."""
    moduli = np.array(primes(buckets), np.int64)
    factors = np.array(multipliers(longest, buckets), np.int64)
    residues = np.arange(pieces)[:, None, None] % moduli
    return (residues * factors % moduli).reshape(pieces, -1).astype(np.int32)


def _runs(content: NDArray[np.bool_]) -> list[slice]:
    """Return where pieces of a text follow each other without a special token or padding between them."""
    positions = content.nonzero()[0]
    if not len(positions):
        return []
    first, last = int(positions[0]), int(positions[-1]) + 1
    if last - first == len(positions):
        return [slice(first, last)]
    gaps = np.flatnonzero(np.diff(positions) > 1)
    starts = [first, *positions[gaps + 1].tolist()]
    return [slice(start, stop) for start, stop in zip(starts, [*(positions[gaps] + 1).tolist(), last], strict=True)]


def _convolved(states: Array, layer: Convolution) -> Array:
    margin = len(layer.kernel) // 2
    padded = np.pad(states, ((margin, margin), (0, 0)))
    mixed = sum(padded[offset : offset + len(states)] * weights for offset, weights in enumerate(layer.kernel))
    result: Array = np.maximum(mixed + layer.kernel_bias, 0) @ layer.pointwise + layer.bias
    return result


def unpacked(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Array]:
    """Return the arrays of a file in fp32: those of 8 bits times the scale of their row, those of 4 of each block."""
    return {name.removesuffix(PACKED): values for name, values in _unpack(arrays)}


def _unpack(arrays: Mapping[str, NDArray[Any]]) -> Iterator[tuple[str, Array]]:
    for name, values in arrays.items():
        if name.endswith(SCALE):
            continue
        scale = arrays.get(name.removesuffix(PACKED) + SCALE)
        if name.endswith(PACKED) and scale is not None:
            integers = np.stack((values & 15, values >> 4), axis=-1).reshape(len(values), -1).astype(np.float32) - 8
            yield name, integers * np.repeat(scale.astype(np.float32), BLOCK, axis=1)[:, : integers.shape[1]]
        elif scale is not None:
            yield name, values * scale.astype(np.float32)[:, None]
        else:
            yield name, values.astype(np.float32)


def open_numpy(model_file: ModelFile, variant: VariantInfo, placement: Placement) -> NumpyPredictor:
    """Open an exported folder."""
    return NumpyPredictor(model_file, placement, variant)
