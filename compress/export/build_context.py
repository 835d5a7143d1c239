"""How a variant is built: the record of a variant and the single argument of its builder."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from compress.console import Console
from compress.errors import CompressError, MissingExtra
from compress.model_folder.model_info import FolderInfo, VariantInfo
from compress.runtimes import RUNTIMES
from compress.tasks.base import Arrays, Row

Batches = Sequence[Arrays]


@contextmanager
def named_folders(names: Mapping[Path, str]) -> Iterator[None]:
    """Write names in the place of these temporary folders' paths into errors, which are read after they are gone."""
    try:
        yield
    except CompressError as error:
        for path, name in names.items():
            error.message = error.message.replace(str(path), name)
            error.hint = error.hint and error.hint.replace(str(path), name)
        error.args = (error.message,)
        raise


@dataclass(frozen=True)
class BuildContext:
    """The input of one export or quantization."""

    variant: VariantInfo
    """The variant to build, as compress.json will describe it."""
    source: Path
    """The folder of the variant it is made from, or the model folder."""
    work: Path
    """An existing folder that receives the result."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the method."""
    seed: int = 0
    console: Console = field(default_factory=lambda: Console("quiet"))
    parity: Mapping[int, Batches] = field(default_factory=dict)
    """By batch size, encoded rows of train on which outputs are compared, beside golden inputs."""
    calibration: Callable[[], Batches] = tuple
    """Draws encoded rows of train from which a static quantizer takes its ranges."""
    train_rows: Callable[[], Sequence[Row]] = tuple
    """Draws rows of train, for methods that compare scores while they quantize."""
    runs_elsewhere: bool = False
    """Whether the result is also wanted where its runtime cannot run here; its outputs are not compared then."""


class Variant(VariantInfo):
    """One way to run a model: what compress.json says of it before anything is measured, and how it is built."""

    devices: tuple[str, ...]
    """Devices on which it can run."""
    needs: str | None = None
    """The variant it is made from; None: the model folder."""
    default_on: tuple[str, ...] = ()
    """Devices on which it competes without being requested. Exports and variants made of them compete where the recipe
    requests their format and quantizer; the others where its `variants` names them."""
    builder: str | None = None
    """`module:function` that builds its folder; None where the model folder serves as it is."""
    graph_builder: str | None = None
    """`module:function` from the graph of the ONNX export to its own, both in memory, with which latencies are measured
    in it for pruning; None where they are not."""
    version: int = 1
    """Raised when the builder's output changes, so that existing results are rebuilt."""
    quantizer: str | None = None
    """The key of `QUANTIZERS` that makes it; None where it is not quantized."""
    compared_with: str | None = None
    """The unquantized variant that it is compared with, where it is quantized from the model folder; None: `needs`."""
    reads: tuple[str, ...] = ()
    """Keys of the recipe's `quantize` that its builder gets as settings."""
    leaves_fp32: bool = False
    """Whether its builder leaves the matrix products in fp32 that `fp32_products` in its settings names."""
    on_request: bool = False
    """Whether it is built only where a recipe's `variants` names it."""
    absent: Mapping[str, str] = {}
    """Devices on which readers would expect it, and why it does not run there."""
    calibrated: bool = False
    """Whether its builder takes ranges from calibration rows."""
    scores_train: bool = False
    """Whether its builder compares scores on rows of train, which only a run has."""
    build_modules: Mapping[str, str] = {}
    """Modules that building imports, and the extra that provides each."""

    @property
    def info(self) -> VariantInfo:
        """The part that is stored in compress.json."""
        return VariantInfo.model_validate(dict(self))

    @property
    def tuner(self) -> str | None:
        """`module:function` that chooses its session options by timing; None where it has none."""
        runtime = RUNTIMES[self.runtime]
        return runtime.tuner if self.builder and self.format == runtime.formats[0] else None

    @property
    def unquantized(self) -> str | None:
        """The variant that it was quantized from, or is compared with; None where it is not quantized."""
        return (self.compared_with or self.needs) if self.quantizer else None

    @property
    def run_modules(self) -> Mapping[str, str]:
        """Modules that running it imports beyond the base install, and the extra that provides each."""
        runtime = RUNTIMES[self.runtime]
        return {name.partition(".")[0]: runtime.extra for name in runtime.modules} if runtime.extra else {}

    def make(self, context: BuildContext) -> FolderInfo:
        """Build it into ``context.work``.

        Raises:
            MissingExtra: a library that builds it is not installed.
        """
        assert self.builder is not None, f"a model folder runs as {self.name} as it is"
        for module, extra in self.build_modules.items():
            if find_spec(module) is None:
                raise MissingExtra(module, extra)
        info: FolderInfo = resolve_name(self.builder)(context)
        return info
