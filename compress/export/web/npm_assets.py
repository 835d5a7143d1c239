"""The runtime and the tokenizer of the web page: files of pinned npm packages, whose digests are checked.

The archives are what `npm pack` writes, which runs no scripts. They come from a folder that the user names, or else
from the user's cache, into which npm downloads them once.
"""

import base64
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compress.errors import CompressError, UsageError
from compress.storage.atomic_write import atomic_write
from compress.storage.file_names import cache_folder

TIMEOUT = 600
"""Seconds that npm may take to download one package."""


@dataclass(frozen=True)
class NpmPackage:
    """One version of an npm package, and what the page needs of it."""

    name: str
    version: str
    integrity: str
    """The sha512 of its archive in base64, as the registry publishes it (`npm view NAME dist.integrity`)."""
    licence: str
    files: Mapping[str, str]
    """Path in the exported folder, by path in the package."""

    @property
    def archive(self) -> str:
        """The name of the file that `npm pack` writes."""
        return f"{self.name.removeprefix('@').replace('/', '-')}-{self.version}.tgz"


PACKAGES = (
    NpmPackage(
        name="onnxruntime-web",
        version="1.30.0",
        integrity="q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ==",
        licence="MIT",
        files={
            "dist/ort.wasm.bundle.min.mjs": "runtime/onnxruntime.js",
            "dist/ort-wasm-simd-threaded.wasm": "runtime/onnxruntime.wasm",
        },
    ),
    NpmPackage(
        name="@huggingface/tokenizers",
        version="0.2.0",
        integrity="LidMHe1FpcSYH4vcSjXooda34pC0M8m1gmDOv7SQi6Iv+ib1zX7J3sHBCC9/3FPCkn2k1b55FneVqMRxrr99pg==",
        licence="Apache-2.0",
        files={"dist/tokenizers.min.mjs": "runtime/tokenizers.js", "LICENSE": "licences/tokenizers.txt"},
    ),
)


def unpack_assets(work: Path, assets: Path | None = None) -> None:
    """Write the files that the page needs into ``work``.

    Args:
        work: the folder of the export.
        assets: a folder with the archive of each package; None: the user's cache, filled by npm.
    """
    for package in PACKAGES:
        _unpack(package, archive_of(package, assets), work)


def archive_folder() -> Path:
    """Return the folder in which archives are kept between exports."""
    return cache_folder() / "npm"


def must_download(settings: Mapping[str, Any]) -> bool:
    """Return whether an export with these settings needs npm: it names no ``assets``, and an archive is not cached."""
    folder = archive_folder()
    return not settings.get("assets") and not all(_is_valid(folder / each.archive, each) for each in PACKAGES)


def archive_of(package: NpmPackage, assets: Path | None = None) -> Path:
    """Return the path of a package's archive, which has the right digest; ``assets`` as in `unpack_assets`."""
    path = (archive_folder() if assets is None else assets) / package.archive
    if assets is not None and not path.is_file():
        raise UsageError(
            f"{assets} holds no {package.archive}.",
            hint=f"with network: npm pack {package.name}@{package.version} --pack-destination {assets}",
        )
    if _is_valid(path, package):
        return path
    if assets is not None:
        raise _wrong_digest(path, package)
    with _downloaded(package) as fresh:
        if _integrity(fresh) != package.integrity:
            raise _wrong_digest(fresh, package)
        try:
            atomic_write(path, fresh.read_bytes())
        except OSError as error:
            raise CompressError(f"{path} cannot be written: {error}") from error
    return path


@contextmanager
def _downloaded(package: NpmPackage) -> Iterator[Path]:
    """Yield the archive of a package that npm has downloaded into a temporary folder."""
    wanted, by_hand = f"{package.name}@{package.version}", "without network, see --assets in docs/web.md"
    npm = shutil.which("npm")
    if npm is None:
        raise CompressError(
            f"npm is needed to download {wanted}, and is not installed.", hint=f"install Node.js; {by_hand}"
        )
    with tempfile.TemporaryDirectory(prefix="compress-npm-") as scratch:
        command = [npm, "pack", wanted, "--ignore-scripts", "--pack-destination", scratch]
        try:
            done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CompressError(f"npm could not download {wanted}: {error}", hint=by_hand) from error
        archive = Path(scratch) / package.archive
        if done.returncode != 0 or not archive.is_file():
            raise CompressError(f"npm could not download {wanted}: {_reason(done.stderr)}", hint=by_hand)
        yield archive


def _reason(stderr: str) -> str:
    """Return npm's first error that is no code: `request to https://… failed`."""
    lines = [line.removeprefix("npm error").strip() for line in stderr.splitlines() if line.startswith("npm error")]
    return next((line for line in lines if line and not line.startswith("code ")), "it gives no reason")


def _is_valid(path: Path, package: NpmPackage) -> bool:
    return path.is_file() and _integrity(path) == package.integrity


def _integrity(path: Path) -> str:
    with path.open("rb") as stream:
        return base64.b64encode(hashlib.file_digest(stream, "sha512").digest()).decode()


def _wrong_digest(path: Path, package: NpmPackage) -> CompressError:
    return CompressError(
        f"{path} is not {package.name} {package.version}: its sha512 is {_integrity(path)}; expected "
        f"{package.integrity}."
    )


def _unpack(package: NpmPackage, archive: Path, work: Path) -> None:
    with tarfile.open(archive) as opened:
        for source, target in package.files.items():
            stream = opened.extractfile(f"package/{source}")
            assert stream is not None, f"{archive} has the digest of one that holds {source}"
            (work / target).parent.mkdir(exist_ok=True)
            with (work / target).open("wb") as file:
                shutil.copyfileobj(stream, file)
