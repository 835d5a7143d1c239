"""`compress export`: exports a model folder outside any run, to one format or to several."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from compress import format_numbers as fmt
from compress.console import Console
from compress.errors import CompressError, ParityMissed, UsageError, nearest, pluralize, unexpected
from compress.export.build_context import Batches
from compress.export.calibration_texts import calibration_batches
from compress.export.comparison.parity_check import WHAT_DECIDES, check_golden
from compress.measure.resources.footprint import footprint
from compress.model_info import FolderInfo, find_info
from compress.models.fetch import fetch
from compress.pipeline.commands.variant_builder import VariantBuilder, build_settings
from compress.quantize import AUTOMATIC, CHOICES, QUANTIZERS
from compress.runtime.predict_command import read_lines
from compress.sentence_transformers_files import task_of_folder
from compress.storage.atomic_write import why_unwritable
from compress.variants import (
    ALL_FORMATS,
    EXPORTS,
    VARIANTS,
    Variant,
    describe_missing,
    missing_extras,
    missing_programs,
    variant_in,
)


def chosen_variants(names: Sequence[str], quantizer: str | None) -> list[Variant]:
    """Return the variants that `--format` and `--quantize` name.

    Args:
        names: formats, variants, or `all`; none: the format that ``quantizer`` makes, or the first one.
        quantizer: `int8` for the INT8 of each format that has one, or a method, which is of one format.
    """
    known = (ALL_FORMATS, *EXPORTS, *(name for name, each in VARIANTS.items() if each.builder))
    for name in names:
        if name not in known:
            raise UsageError(f"no format is called '{name}'{nearest(name, known)}")
    if quantizer is not None and quantizer not in (*CHOICES, *QUANTIZERS):
        raise UsageError(f"no quantizer is called '{quantizer}'{nearest(quantizer, (*CHOICES, *QUANTIZERS))}")
    if quantizer is not None and quantizer in QUANTIZERS:
        method = QUANTIZERS[quantizer]
        if others := [name for name in names if name != method.format]:
            what = f"makes {method.format} files, not {', '.join(others)}"
            raise UsageError(f"--quantize {quantizer} {what}; leave --format out, or write --quantize {AUTOMATIC}.")
        return [method]
    named = [name for name in names if name != ALL_FORMATS] or ([] if names else [next(iter(EXPORTS))])
    meant = EXPORTS if ALL_FORMATS in names else ()
    usual = {name: EXPORTS[name].usual if quantizer is None else "int8" for name in EXPORTS}
    variants = {name: variant_in(name, usual[name]) if name in EXPORTS else VARIANTS[name] for name in (*named, *meant)}
    for name in named:
        if quantizer is not None and variants[name].precision != "int8":
            raise UsageError(f"{name} has no variant in INT8; export it by a command without --quantize.")
    return list({each.name: each for each in variants.values()}.values())


def export_folder(
    model: str,
    to: Path,
    variant: Variant,
    *,
    console: Console,
    calibration: Path | None = None,
    assets: Path | None = None,
) -> FolderInfo:
    """Export a model as ``variant`` into ``to``, and tune it for this machine.

    ``model``: a folder, card or hub id; or an export that ``variant`` is made from, such as one of ONNX for ORT.
    ``calibration``: a file of texts from which static methods take their ranges. ``assets``: a folder with the npm
    packages of the web format.
    """
    _require_writable(to)
    if missing := _missing(variant, assets):
        raise CompressError(f"{variant.name} cannot be built here: not installed: {missing}.")
    with _exporter(model, console, calibration, assets) as exporter:
        exporter.check(variant)
        return exporter.export(variant, to)


def export_all(
    model: str,
    to: Path,
    variants: Sequence[Variant],
    *,
    named: Collection[str],
    console: Console,
    calibration: Path | None = None,
    assets: Path | None = None,
) -> None:
    """Export a model to several formats, each into a folder of its name in ``to``, and show what became of each.

    One that fails does not stop the others. One that needs what is not installed fails if it is among ``named``,
    formats and variants that were asked for by name; of those that `all` means it is only listed.

    Raises:
        CompressError: at the end, where any failed.
        ParityMissed: else, where one is written and differs from PyTorch by more than the limit of its precision.
    """
    _require_writable(to)
    formats = [each.format for each in variants]
    names = {each.name: each.format if formats.count(each.format) == 1 else each.name for each in variants}
    rows: list[dict[str, Any]] = []
    absent = {variant.name: missing for variant in variants if (missing := _missing(variant, assets))}
    for name, missing in absent.items():  # before the first long build
        console.note(f"{name} will not be built: not installed: {missing}")
    missed: list[str] = []
    with _exporter(model, console, calibration, assets) as exporter:
        refused = {each.name: reason for each in variants if (reason := _refusal(exporter, each))}
        for name, reason in refused.items():
            console.note(f"{name} will not be built: {reason}")
        for variant in variants:
            folder = to / names[variant.name]
            row = {"format": variant.format, "variant": variant.name, "folder": "", "size": "", "outcome": "done"}
            if variant.name in absent:
                is_named = not {variant.name, variant.format}.isdisjoint(named)
                row["outcome"] = f"{'failed: ' if is_named else ''}not installed: {absent[variant.name]}"
            elif variant.name in refused:
                row["outcome"] = f"failed: {refused[variant.name]}"
            else:
                try:
                    exporter.export(variant, folder)
                    row |= {"folder": str(folder), "size": fmt.size(footprint(folder).bytes_total)}
                    if misses := check_golden(folder).misses:
                        row["outcome"] = f"does not repeat PyTorch: {'; '.join(misses)}"
                        missed.append(variant.name)
                except Exception as error:  # noqa: BLE001  # whatever a library raises, the others are built
                    failure = error if isinstance(error, CompressError) else unexpected(error)
                    row["outcome"] = f"failed: {failure.message}"
            rows.append(row)
    console.table(rows)
    if failed := [row["variant"] for row in rows if row["outcome"].startswith("failed")]:
        raise CompressError(f"{len(failed)} of {pluralize(len(rows), 'format')} failed: {', '.join(failed)}.")
    if missed:
        what = f"{len(missed)} of {pluralize(len(rows), 'format')} do not repeat PyTorch: {', '.join(missed)}."
        raise ParityMissed(what, hint=WHAT_DECIDES)


def _refusal(exporter: VariantBuilder, variant: Variant) -> str | None:
    """Return why ``variant`` cannot be built from this model with these options; None where it can be tried."""
    try:
        exporter.check(variant)
    except CompressError as error:
        return error.full_message
    return None


@contextmanager
def _exporter(model: str, console: Console, calibration: Path | None, assets: Path | None) -> Iterator[VariantBuilder]:
    source = fetch(model)
    sample = _calibration(calibration, source) if calibration else ()
    with tempfile.TemporaryDirectory(prefix="compress-export-") as scratch:
        yield VariantBuilder(source, Path(scratch), console, sample, assets)


def _missing(variant: Variant, assets: Path | None) -> str:
    """Return what building ``variant`` needs and is not installed, and how to install it; empty where nothing is."""
    absent = missing_extras(variant.format) | {
        module: extra for module, extra in variant.build_modules.items() if find_spec(module) is None
    }
    return describe_missing(absent, missing_programs(variant.format, build_settings(variant, assets)))


def _require_writable(to: Path) -> None:
    """Refuse a folder that has content already or cannot be created, before the first long build."""
    if reason := why_unwritable(to):
        raise UsageError(f"{to} cannot be written: {reason}.")
    if to.exists() and any(to.iterdir()):
        raise UsageError(f"{to} already exists and is not empty.", hint="name another folder, or remove it first")


def _calibration(file: Path, source: Path) -> Batches:
    info = find_info(source)
    texts = ((origin, text) for origin, text in read_lines(file) if text.strip())
    return calibration_batches(texts, source, info.task if info else task_of_folder(source))
