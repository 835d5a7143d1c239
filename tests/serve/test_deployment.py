"""The files of deploy/serve: what they copy exists, and their command serves."""

import argparse
import json
import re
from pathlib import Path

import pytest
import yaml

from compress.cli import parsed
from compress.serve.service import Limits

ROOT = Path(__file__).resolve().parents[2]
SERVE = ROOT / "deploy" / "serve"
DOCKERFILE = (SERVE / "Dockerfile").read_text(encoding="utf-8").splitlines()


def commands() -> list[list[str]]:
    """The command of each file."""
    found = [json.loads(line.removeprefix("CMD ")) for line in DOCKERFILE if line.startswith("CMD ")]
    for name in ("kubernetes.yaml", "kserve.yaml"):
        for document in yaml.safe_load_all((SERVE / name).read_text(encoding="utf-8")):
            text = json.dumps(document)
            found += [json.loads(each) for each in re.findall(r'"args": (\[.*?\])', text)]
    return found


def test_there_is_a_command_for_each() -> None:
    assert len(commands()) == 3


@pytest.mark.parametrize("words", commands(), ids=str)
def test_its_command_is_one_of_ours(words: list[str]) -> None:
    program, *arguments = words
    assert program == "compress"
    options = parsed(arguments)
    assert isinstance(options, argparse.Namespace)
    assert (options.command, options.folders, options.host) == ("serve", ["model=/model"], "0.0.0.0")


def test_what_the_image_copies_exists() -> None:
    copied = [name for line in DOCKERFILE if line.startswith("COPY ") for name in line.split()[1:-1]]
    assert all((ROOT / name).exists() for name in copied if not name.startswith("$"))


def test_the_service_ends_before_it_is_killed() -> None:
    text = (SERVE / "kubernetes.yaml").read_text(encoding="utf-8")
    [killed_after] = map(int, re.findall(r"terminationGracePeriodSeconds: (\d+)", text))
    assert Limits().send < Limits().ending < killed_after


def test_probes_and_ports_are_those_of_the_service(service_of) -> None:
    paths = set()
    for name in ("kubernetes.yaml", "kserve.yaml"):
        paths |= set(re.findall(r"path: (/[\w/]+)", (SERVE / name).read_text(encoding="utf-8")))
    assert paths == {"/health/ready", "/health/live", "/v2/models/model/ready", "/metrics"}
    client = service_of("classification").client
    for path in paths:
        assert client.get(path.replace("/model/", "/classification/")).status_code == 200
