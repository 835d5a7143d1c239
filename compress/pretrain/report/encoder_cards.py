"""Cards of a pretrained encoder, by which task recipes name it as their teacher or student."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from compress.model_info import ShapeInfo
from compress.recipe.yaml_lines import dump_yaml

MODEL_FOLDER = "model"
CHECKPOINT = {"folder": f"../{MODEL_FOLDER}"}
"""Relative to the folders of cards."""
LANGUAGE = "und"
"""The language code of texts of an undetermined language (ISO 639-2)."""


def write_cards(name: str, shape: ShapeInfo, max_length: int, notes: str, folder: Path) -> None:
    """Write a teacher's and a student's card into ``folder``, which `--cards` then names."""
    common: dict[str, Any] = {"schema_version": 1, "name": name, "title": f"{name}: {shape.text}"}
    sizes = {"layers": shape.layers, "hidden": shape.hidden, "heads": shape.heads[0], "ffn": shape.ffn[0]}
    cards: dict[str, dict[str, Any]] = {
        "teachers": {
            "checkpoint": CHECKPOINT,
            "family": shape.family,
            "licence": None,
            "languages": [LANGUAGE],
            "max_length": max_length,
        },
        "students": {"shape": sizes, "start": CHECKPOINT, "distill": {"losses": {"soft_label": 1.0}}},
    }
    for kind, card in cards.items():
        path = folder / kind / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dump_yaml({**common, **card, "notes": notes}), encoding="utf-8")
