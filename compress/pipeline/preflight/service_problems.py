"""Finds a service's file that cannot be read, or that is about another task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from compress.errors import CompressError, Problem
from compress.label.service_info import read_service
from compress.recipe.schema import Recipe


def service_problems(recipe: Recipe) -> Iterator[Problem]:
    """Yield what is wrong with the recipe's `service`."""
    if recipe.service is None:
        return
    try:
        service = read_service(Path(recipe.service))
    except CompressError as error:
        yield Problem(("service",), error.full_message)
        return
    if service.kind != recipe.task.kind:
        yield Problem(("service",), f"{service.model} answered a task of kind {service.kind}, not {recipe.task.kind}")
    elif set(service.labels) != set(recipe.task.labels or service.labels):
        yield Problem(("service",), f"{service.model} answered with other labels: {', '.join(service.labels)}")
