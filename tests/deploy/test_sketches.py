"""The pages about phones name commands that compress takes, and files that those exports have."""

import re
from pathlib import Path

import pytest

from compress.cli import parsed
from compress.data.tokenizer import TOKENIZER_FILE
from compress.formats import FORMATS
from compress.model_info import GOLDEN_FILE
from compress.pipeline.commands.export_command import chosen_variants

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
COMMAND = re.compile(r"`compress (export [^`]*)`")
IN_BUNDLE = re.compile(r'forResource: "(\w+)", ofType: "(\w+)"')
"""How Swift names a file of the app."""
FILE = re.compile(r"\bmodel\.(?!vocab)\w+|\w+\.safetensors|tokenizer\.json")


@pytest.mark.parametrize("page", ["android.md", "ios.md"])
def test_each_command_builds_the_files_that_its_section_names(page):
    sections = (DEPLOY / page).read_text(encoding="utf-8").split("\n## ")
    commands = {command: section for section in sections for command in COMMAND.findall(section)}
    assert commands
    for command, section in commands.items():
        options = parsed(command.split())
        (variant,) = chosen_variants(options.formats, options.quantize)
        model = FORMATS[variant.format].files[0]
        named = {*FILE.findall(section), *map(".".join, IN_BUNDLE.findall(section))}
        assert {model} <= named <= {model, TOKENIZER_FILE, GOLDEN_FILE}
