"""The command line: parses options, calls what the command does, turns errors into exit codes.

A file a group of commands has the options of each beside what it does. Imports are inside the functions, so that every
command loads only what it needs.
"""

import argparse
import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from compress import __version__
from compress.cli import predict_commands, report_commands, run_commands, zoo_commands
from compress.cli.arguments import OUTPUTS, Handler
from compress.console import Console, escape_other_characters, program_name, with_program
from compress.errors import EXIT_CODES, UsageError, closest, suggestion, unexpected

_INTERRUPTED_RUN = "interrupted; finished steps are cached, and the same command resumes there"
INTERRUPTED = {
    "run": _INTERRUPTED_RUN,
    "search": _INTERRUPTED_RUN,
    "pretrain": _INTERRUPTED_RUN,
    "label": "interrupted; every answer is stored, and the same command goes on there",
    "predict": "interrupted; parts of --to that are finished are kept, and the same command goes on there",
}
"""What Ctrl-C means, by command."""

LOUD_LIBRARIES = ("torchao", "torch.utils._pytree")
"""Where neural-compressor has installed torchao, transformers imports it, and both of these log about its parts for
devices that are not there. Only errors are shown."""

EPILOG = f"""\
start here:
  compress init                      write a recipe to fill in
  compress plan recipe.yaml          list its steps, and estimate their time
  compress run recipe.yaml           fine-tune, distil, prune, quantize, measure, report, publish
  compress search recipe.yaml --budget p50=0.5ms,size=5MB   find the shape within a budget
  compress predict winner/ "a text"  use the result

exit codes: {", ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())}
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; ``compress.__main__`` and the console scripts call this."""
    escape_other_characters()
    options = parsed(arguments)
    console = Console(options.format, verbose=getattr(options, "verbose", False))
    for library in LOUD_LIBRARIES:
        logging.getLogger(library).setLevel(logging.ERROR)
    try:
        options.handler(options, console)
        return 0
    except KeyboardInterrupt:
        console.warn(INTERRUPTED.get(options.command, "interrupted"))
        return 130
    except BrokenPipeError:
        # The reader of our output was closed (`| head`): nothing more can be written, nor flushed at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("COMPRESS_DEBUG") == "1":
            raise
        failure = unexpected(error)
        console.error(failure)
        return failure.exit_code


REPEATED = {"predict": "texts", "bench": "models", "probe": "models", "report": "runs_shown"}
"""The commands whose last argument may be repeated, and its name."""


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the arguments; repeated ones may also follow options, where argparse does not expect them."""
    top = parser()
    if not (sys.argv[1:] if arguments is None else arguments):
        top.print_help(sys.stderr)
        raise SystemExit(UsageError.exit_code)
    options, rest = top.parse_known_args(arguments)
    flags = [word for word in rest if word.startswith("-")]
    if rest and not flags and options.command in REPEATED:
        getattr(options, REPEATED[options.command]).extend(rest)
    elif rest and not flags and options.command == "pull" and options.to is None and len(rest) == 1:
        options.to = Path(rest[0])
    elif rest:
        guess = meant_option(flags[0].partition("=")[0], options.command, commands_of(top)) if flags else ""
        options.grammar.error(f"unrecognized arguments: {' '.join(flags or rest)}{guess}")
    if options.command == "export":
        outputs = [name for name in options.formats if name in OUTPUTS]
        options.format = outputs[-1] if outputs else OUTPUTS[0]
        options.formats = [name for name in options.formats if name not in OUTPUTS]
    return options


class _Parser(argparse.ArgumentParser):
    """A parser whose help repeats the name by which the program was called."""

    def format_help(self) -> str:
        """Return the help, with that name in front of every command."""
        return with_program(super().format_help(), program_name())

    def error(self, message: str) -> NoReturn:
        """End with the message, and the command or choice that was perhaps meant."""
        found = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        super().error(message + (suggestion(found[1], re.findall(r"[\w-]+", found[2])) if found else ""))


def meant_option(flag: str, command: str, grammars: Mapping[str, argparse.ArgumentParser]) -> str:
    """Return `; did you mean --budget?` of an option that a command lacks, or which other command has it."""
    word, own = flag.lstrip("-"), {option.lstrip("-"): option for option in option_names(grammars[command])}
    others = {
        option.lstrip("-"): f"{option} of compress {name}"
        for name, grammar in reversed([*grammars.items()])  # of two commands the first one is named
        for option in option_names(grammar)
    }
    for known in ({word: others[word]} if word in others else {}, own, others):
        if meant := closest(word, known):
            return f"; did you mean {known[meant]}?"
    return ""


def commands_of(grammar: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the grammars of the commands, or of the actions, that a grammar has."""
    parts = (action.choices for action in grammar._actions if isinstance(action, argparse._SubParsersAction))
    return {name: part for choices in parts for name, part in choices.items()}


def option_names(grammar: argparse.ArgumentParser) -> list[str]:
    """Return the options of a command, those of its actions among them."""
    own = (name for action in grammar._actions for name in action.option_strings)
    return [*own, *(name for part in commands_of(grammar).values() for name in option_names(part))]


COMMANDS = (
    run_commands.add_init,
    run_commands.add_label,
    run_commands.add_ls,
    run_commands.add_plan,
    run_commands.add_run,
    run_commands.add_search,
    run_commands.add_pretrain,
    run_commands.add_clean,
    report_commands.add_report,
    report_commands.add_bench,
    report_commands.add_probe,
    zoo_commands.add_export,
    zoo_commands.add_publish,
    zoo_commands.add_zoo,
    zoo_commands.add_pull,
    zoo_commands.add_verify,
    predict_commands.add_predict,
    predict_commands.add_serve,
    predict_commands.add_doctor,
)
"""In the order of the help."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = _Parser(
        prog=program_name(),
        description="Make BERT-family encoders small and fast, and prove it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"compress-encoders {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, text: str, handler: Handler, /) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(handler=handler, grammar=sub)
        sub.add_argument("--cards", action="append", type=Path, default=[], metavar="DIR", help="your own cards")
        sub.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder of runs (runs/)")
        if name != "export":  # there, the same option names formats of models too
            sub.add_argument("--format", choices=OUTPUTS, default=OUTPUTS[0], help="format of the output")
        return sub

    for add in COMMANDS:
        add(command)
    return top
