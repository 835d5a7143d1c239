"""The quickstart's data: text without capitals and full stops, in which the words that begin a sentence are tagged.

People who type fast write such text. The labels come with the sentences, and nobody disagrees about them. Nothing is
downloaded: the paragraphs are docstrings of libraries that are installed with compress, read from their source files
without importing them. Equal packages give the same rows in the same order, on every platform and Python; they are
collected once and cached.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from operator import itemgetter
from pathlib import Path

from compress.console import Console
from compress.errors import DataError, UsageError, nearest
from compress.storage.atomic_write import atomic_write
from compress.storage.file_names import cache_folder
from compress.tasks.base import RawRow
from compress.tasks.parsing.bio_tags import BEGIN, OUTSIDE

LIBRARIES = ("networkx", "numpy", "pandas", "scikit-learn", "scipy", "sympy", "torch", "transformers")
"""Distributions that the train extra installs, directly or through dependencies."""

BUILTIN_SOURCES = {"sentence_starts": LIBRARIES}
"""Builtin data sets, and the distributions that each is collected from."""

VERSION = 1
"""Raised when the method of collecting changes, so that sets of another version are not reused."""

SKIPPED_FOLDERS = frozenset({"test", "tests", "_tests", "testing", "_vendor", "externals", "_external", "__pycache__"})
"""Folders that do not document the library."""

SHORTEST, LONGEST = 4, 20
"""Fewest and most words of a sentence that is used."""

MOST_WORDS = 36
"""Most words of a row; sentences beyond them are left out."""

SINGLE = 0.25
"""Share of rows of one sentence, at most: in most paragraphs there is only one, and in those nothing is to be found."""

LETTERS = 0.9
"""Least share of letters and spaces, which separates sentences from formulas and tables."""

QUOTES = ('"""', "'''")
"""What begins and ends a docstring."""

PARAGRAPH_END = re.compile(r"\n\s*\n")

ROLE = re.compile(r":[\w:+-]+:`~?([^`<]+?)(?:\s*<[^>]*>)?`_{0,2}")
"""Sphinx roles such as :class:`~torch.nn.Linear`, of which the name alone is text."""

SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'`])")

MARKUP = re.compile(r">>>|-{3}|::|\.\. |https?:|\{\{|\}\}|==|\|\s|^\s*[-*=~@:]|#|^\w+:|\b[A-Z]\w+:|\):|\s:\s|\\")
"""Signs of code, tables, links and directives: text with one of these is not a plain sentence."""

CODE = re.compile(r"[a-z][A-Z]|_\w|\w_|\w\.\w|\w[(\[]")
"""Signs of an identifier."""

ABBREVIATION = re.compile(
    r"\b(?:[a-z]|e\.g|i\.e|etc|al|vs|cf|figs?|eqs?|ref|no|resp|approx|sec|dr|st|pp|vol)\.$", re.IGNORECASE
)
"""Full stops that need not end a sentence."""

START = f"{BEGIN}START"
"""The tag of a word that begins a sentence."""

REMOVED = str.maketrans(dict.fromkeys('()[]{}<>*"`'))
"""Characters that are removed from words wherever they are."""

EDGES = ".!?'-"
"""Characters that are removed from both ends of a word; commas, colons and semicolons stay."""


def builtin_rows(name: str, console: Console | None = None) -> Iterator[RawRow]:
    """Yield the rows of a builtin set, collected first if they are not cached for these packages."""
    path = builtin_file(name, console or Console("quiet"))
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            yield RawRow(f"builtin {name}, row {number}", json.loads(line))


def builtin_file(name: str, console: Console) -> Path:
    """Return the file of a builtin set, written at once, so that a file that exists is complete.

    Its name identifies the packages' files by path and size: another version, or another build of the same one, is read
    again. Whether its rows differ then is for the digest of the file to say.
    """
    files = source_files(package_roots(name))
    identity = json.dumps([name, VERSION, [(key, path.stat().st_size) for key, path in files]])
    cached = cache_folder() / f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.jsonl"
    if not cached.is_file():
        content = "".join(json.dumps(row) + "\n" for row in collect_rows(files, console))
        if not content:
            libraries = ", ".join(BUILTIN_SOURCES[name])
            raise DataError(f"no sentences of documentation in {libraries}: are they installed with their sources?")
        try:
            atomic_write(cached, content)
        except OSError as error:
            raise DataError(
                f"the builtin set '{name}' cannot be cached at {cached}: {error.strerror or error}.",
                hint="COMPRESS_CACHE names another folder for such files",
            ) from error
    return cached


def package_roots(builtin: str) -> dict[str, Path]:
    """Return the source folder of each library of a set, from metadata: importing torch to locate it takes seconds."""
    if builtin not in BUILTIN_SOURCES:
        raise UsageError(f"no builtin set is called '{builtin}'{nearest(builtin, BUILTIN_SOURCES)}.")
    roots, missing = dict[str, Path](), list[str]()
    for name in BUILTIN_SOURCES[builtin]:
        try:
            folder = "sklearn" if name == "scikit-learn" else name
            roots[name] = Path(str(metadata.distribution(name).locate_file(folder)))
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        raise DataError(
            f"the builtin set '{builtin}' is collected from installed packages; not installed: {', '.join(missing)}.",
            hint="pip install 'compress-encoders[train,quickstart]'",
        )
    return roots


def source_files(roots: Mapping[str, Path]) -> list[tuple[str, Path]]:
    """Return the source files of all libraries, with names that are the same wherever they are installed.

    Their pseudo-random order mixes the libraries.
    """
    found = ((name, root, path) for name, root in roots.items() for path in root.rglob("*.py"))
    files = [
        (f"{name}/{path.relative_to(root).as_posix()}", path)
        for name, root, path in found
        if not SKIPPED_FOLDERS.intersection(path.relative_to(root).parts)
    ]
    return sorted(files, key=lambda entry: hashlib.sha256(entry[0].encode()).digest())


def collect_rows(files: Iterable[tuple[str, Path]], console: Console) -> Iterator[dict[str, list[str]]]:
    """Yield rows of words and their tags; no sentence is in two rows."""
    files, seen, rows, singles = list(files), set[str](), 0, 0
    with console.progress(len(files), "collecting sentences of documentation", "files") as progress:
        for _, path in files:
            for paragraph in paragraphs(path.read_text(encoding="utf-8", errors="ignore")):
                sentences = [words(sentence) for sentence in plain_sentences(paragraph)]
                row, keys = tagged(sentences), {" ".join(sentence) for sentence in sentences}
                single = row is not None and START not in row["tags"]
                if row is None or keys & seen or (single and singles + 1 > SINGLE * (rows + 1)):
                    continue
                seen |= keys
                rows, singles = rows + 1, singles + single
                yield row
            progress.advance()


def paragraphs(source: str) -> Iterator[str]:
    """Yield the paragraphs of a source file's docstrings, each in one line and without markup of names.

    Python's parser would be exact, and slower, and skip files whose syntax is newer than the interpreter.
    """
    for string in docstrings(source):
        for paragraph in PARAGRAPH_END.split(string):
            named = ROLE.sub(r"\1", paragraph).replace("`", "") if "`" in paragraph else paragraph
            yield " ".join(named.split())


def docstrings(source: str) -> Iterator[str]:
    """Yield the strings in triple quotes before which their line has nothing but the letter r or u."""
    begins = {quotes: source.find(quotes) for quotes in QUOTES}
    while begins := {quotes: begin for quotes, begin in begins.items() if begin >= 0}:
        quotes, begin = min(begins.items(), key=itemgetter(1))
        line = source[source.rfind("\n", 0, begin) + 1 : begin]
        end = source.find(quotes, begin + len(quotes))
        if end >= 0 and line.lstrip().lower() in ("", "r", "u"):
            yield source[begin + len(quotes) : end]
        position = end + len(quotes) if end >= 0 else begin + 1
        begins = {each: start if start >= position else source.find(each, position) for each, start in begins.items()}


def plain_sentences(paragraph: str) -> list[str]:
    """Return the longest run of plain sentences that follow each other in a paragraph."""
    longest, run = list[str](), list[str]()
    for sentence in SENTENCE_END.split(paragraph):
        run = [*run, sentence] if is_plain(sentence) else []
        longest = run if len(run) > len(longest) else longest
    return longest


def is_plain(sentence: str) -> bool:
    """Return whether this is prose of a sensible length that begins and ends like a sentence."""
    if not SHORTEST <= len(sentence.split()) <= LONGEST or not sentence[0].isupper() or sentence[-1] not in ".!?":
        return False
    letters = sum(map(str.isalpha, sentence)) + sentence.count(" ")
    if not sentence.isascii() or letters < LETTERS * len(sentence):
        return False
    return not any(sign.search(sentence) for sign in (MARKUP, CODE, ABBREVIATION))


def words(sentence: str) -> list[str]:
    """Return the words of a sentence in lower case, without full stops, question marks, quotes and brackets."""
    stripped = (word.translate(REMOVED).strip(EDGES).lower() for word in sentence.split())
    return [word for word in stripped if word.strip(",:;")]


def tagged(sentences: Iterable[list[str]]) -> dict[str, list[str]] | None:
    """Return the words of the first sentences and their tags; None where not even the first one fits.

    The first word of the text begins a sentence too, but there is nothing to find out about it: it is not tagged.
    """
    tokens, tags = list[str](), list[str]()
    for sentence in sentences:
        if len(tokens) + len(sentence) > MOST_WORDS:
            break
        tags += [START if tokens else OUTSIDE, *[OUTSIDE] * (len(sentence) - 1)]
        tokens += sentence
    return {"tokens": tokens, "tags": tags} if tokens else None
