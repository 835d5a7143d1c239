"""`compress export`: exports a model folder outside any run, to one format or to several.

With `--check` it compares an existing export with PyTorch, and writes nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from compress import format_numbers as fmt
from compress.console import Console
from compress.data.tokenizer import read_json
from compress.environment import cuda_devices
from compress.errors import (
    CompressError,
    DeviceUnavailable,
    ModelError,
    ParityMissed,
    UsageError,
    nearest,
    pluralize,
    suggestion,
    unexpected,
)
from compress.export import BuildContext
from compress.export.build_context import Batches, named_folders
from compress.export.comparison.parity import Parity
from compress.export.comparison.parity_check import WHAT_DECIDES, check_golden, check_parity
from compress.families import LIGHT_FAMILIES, plain_model_type
from compress.formats import FORMATS
from compress.make_variant import VariantMaker
from compress.measure.resources.footprint import footprint
from compress.model_folder.model_info import FolderInfo, find_info, read_info
from compress.model_folder.sentence_transformers_files import task_of_folder
from compress.model_sources import exported_variant
from compress.models.fetch import fetch
from compress.pipeline.run_lock import step_folder
from compress.quantize import AUTOMATIC, CHOICES, QUANTIZERS
from compress.quantize.calibration_rows import calibration_batches, require_rows
from compress.report.report_schema import read_report
from compress.runtime.predict_command import read_lines
from compress.storage.atomic_write import atomic_copy_folder, why_unwritable
from compress.variants import (
    ALL_FORMATS,
    EXPORTS,
    VARIANTS,
    Variant,
    describe_missing,
    missing_extras,
    missing_programs,
    variant_in,
    why_unfit,
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
            raise UsageError(
                f"no format is called '{name}'{suggestion(name, known)}; formats are {', '.join(EXPORTS)}."
            )
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


FAILED = "failed: "
"""Begins the outcome of a variant that was asked for by name, or whose build failed."""


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

    One that fails does not stop the others. One that needs what is not installed, or that this model cannot have, fails
    if it is among ``named``, formats and variants that were asked for by name; of those that `all` means it is only
    listed.

    Raises:
        CompressError: at the end, where any failed.
        ParityMissed: else, where one is written and differs from PyTorch by more than the limit of its precision.
    """
    _require_writable(to)
    formats = [each.format for each in variants]
    names = {each.name: each.format if formats.count(each.format) == 1 else each.name for each in variants}
    rows: list[dict[str, Any]] = []
    missed: list[str] = []
    with _exporter(model, console, calibration, assets) as exporter:
        unbuilt = {each.name: reason for each in variants if (reason := _why_unbuilt(exporter, each, named))}
        for name, reason in unbuilt.items():  # before the first long build
            console.note(f"{name} will not be built: {reason.removeprefix(FAILED)}")
        for variant in variants:
            folder = to / names[variant.name]
            row = {"format": variant.format, "variant": variant.name, "folder": "", "size": "", "outcome": "done"}
            if variant.name in unbuilt:
                row["outcome"] = unbuilt[variant.name]
            else:
                try:
                    exporter.export(variant, folder)
                    row |= {"folder": str(folder), "size": fmt.size(footprint(folder).bytes_total)}
                    if misses := check_golden(folder).misses:
                        row["outcome"] = f"does not repeat PyTorch: {'; '.join(misses)}"
                        missed.append(variant.name)
                except Exception as error:  # noqa: BLE001  # whatever a library raises, the others are built
                    failure = unexpected(error)
                    row["outcome"] = f"{FAILED}{failure.message}"
            rows.append(row)
    console.table(rows)
    if failed := [row["variant"] for row in rows if row["outcome"].startswith(FAILED)]:
        raise CompressError(f"{len(failed)} of {pluralize(len(rows), 'format')} failed: {', '.join(failed)}.")
    if missed:
        what = f"{len(missed)} of {pluralize(len(rows), 'format')} do not repeat PyTorch: {', '.join(missed)}."
        raise ParityMissed(what, hint=WHAT_DECIDES)


def _why_unbuilt(exporter: VariantBuilder, variant: Variant, named: Collection[str]) -> str | None:
    """Return the outcome of a variant that cannot be built here with these options; None where it can be tried."""
    begins = "" if {variant.name, variant.format}.isdisjoint(named) else FAILED
    try:
        if reason := exporter.why_unfit(variant):
            return f"{begins}{reason}"
        if missing := _missing(variant, exporter.assets):
            return f"{begins}not installed: {missing}"
        exporter.check(variant)
    except CompressError as error:
        return f"{FAILED}{error.full_message}"
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


def check_and_show(model: str, folder: Path, console: Console) -> None:
    """Compare the export in ``folder`` with a model (a folder, card or hub id), show the differences, and judge them.

    Raises:
        ParityMissed: they exceed the limits of the export's precision.
    """
    check = check_parity(fetch(model), folder)
    groups = {**check.groups, "all": check.total}
    if console.format == "json":
        inputs = {name: parity.record() for name, parity in groups.items()}
        console.data({"variant": check.variant.name, "limit": check.limit, "misses": check.misses, "inputs": inputs})
    else:
        console.table([parity_row(name, parity) for name, parity in groups.items()])
    check.raise_for_misses(folder)
    console.note(check.verdict(folder))


def parity_row(inputs: str, parity: Parity) -> dict[str, Any]:
    """Return the differences on a group of golden inputs as a row of the table."""
    return {
        "inputs": inputs,
        "rows": parity.rows,
        "largest difference": parity.max_abs_difference,
        "largest output": parity.largest_output,
        "equal decisions": None if parity.agreement is None else f"{parity.agreement:.1%}",
    }


@dataclass(frozen=True)
class VariantBuilder:
    """Builds variants of one model for the command."""

    model: Path
    scratch: Path
    console: Console
    sample: Batches
    assets: Path | None

    def why_unfit(self, variant: Variant) -> str | None:
        """Return why a model of this kind cannot have a format, whatever is installed; None where it can."""
        form, info = FORMATS[variant.format], find_info(self.model)
        # That of an export describes it to other tools.
        config = read_json(self.model / "config.json") if exported_variant(self.model) is None else {}
        is_light = plain_model_type(str(config.get("model_type", ""))) in LIGHT_FAMILIES
        facts = {"has_attention": bool(config) and not is_light, "has_lstm": bool(config.get("head_layers"))}
        if reason := why_unfit(variant.format, **facts):
            return reason
        if form.needs_task and (info.task if info else task_of_folder(self.model)) is None:
            return f"{form.name} needs a model that states which task it was trained for"
        return None

    def check(self, variant: Variant) -> None:
        """Refuse what the model and the options show to be impossible, before the first long build.

        Raises:
            UsageError: the model is an export of another kind, or calibration rows are missing.
            CompressError: the machine or the model lacks what ``variant`` needs.
        """
        if reason := self.why_unfit(variant):
            raise ModelError(f"{self.model}: {reason}.")
        each: Variant | None = variant
        while each is not None:
            if each.scores_train:
                what = f"{each.method} compares scores on rows of train, which compress export does not have."
                raise UsageError(what, hint="use it in a recipe")
            if each.calibrated:
                require_rows(each.method, sum(len(batch["input_ids"]) for batch in self.sample))
            if "cpu" not in each.devices and not cuda_devices():
                raise DeviceUnavailable(f"{each.name} needs a CUDA device to be compared on, and there is none here.")
            if check := FORMATS[each.format].build_check:
                resolve_name(check)(self.model, build_settings(each, self.assets))
            each = self._needed(each)

    def export(self, variant: Variant, to: Path) -> FolderInfo:
        """Build ``variant`` and write it into ``to``, with the session options that are fastest on this machine."""
        work = self._maker.make(variant)
        if variant.tuner is not None:
            with named_folders(self._maker.names):
                resolve_name(variant.tuner)(work, work)
        atomic_copy_folder(work, to)
        return read_info(work)

    @cached_property
    def _maker(self) -> VariantMaker:
        def context(variant: Variant, source: Path, work: Path) -> BuildContext:
            settings = build_settings(variant, self.assets)
            return BuildContext(
                variant.info, source, work, settings, console=self.console, calibration=lambda: self.sample
            )

        return VariantMaker(self.model, self.scratch, context, self._present)

    def _present(self, variant: Variant) -> Path | None:
        """Return the model's folder where it is an export that serves as ``variant``."""
        held = exported_variant(self.model)
        serves = held is not None and (held.format, held.precision) == (variant.format, variant.precision)
        return self.model if serves else None

    def _needed(self, variant: Variant) -> Variant | None:
        """Return the variant that ``variant`` is made from; None where that is the model, which may be an export too.

        Raises:
            UsageError: the model is an export of another kind.
        """
        needed, held = VARIANTS[variant.needs] if variant.needs else None, exported_variant(self.model)
        if needed is None and held is not None:
            raise UsageError(
                f"{variant.name} is made from a model folder; {self.model} holds an export, {held.name}.",
                hint=f"name the folder that it was exported from{_origin_of(self.model)}",
            )
        return None if needed is None or self._present(needed) else needed


def _origin_of(winner: Path) -> str:
    """Return `: FOLDER` with the model that a run's winner was exported from; empty where that is not known."""
    with suppress(CompressError, IndexError):
        run = winner.resolve().parents[1]
        report, target = read_report(run), winner.resolve().name
        verdict = report.verdict(target)
        row = report.row(verdict.winner) if verdict and verdict.winner else None
        for folder in (step_folder(run, step) for step in reversed(row.steps if row else ())):
            if find_info(folder) and exported_variant(folder) is None:
                return f": {folder}"
    return ""


def build_settings(variant: Variant, assets: Path | None) -> dict[str, Any]:
    """Return the settings of the builder of ``variant``."""
    return {"assets": assets} if variant.format == "web" else {}
