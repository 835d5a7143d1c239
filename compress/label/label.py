"""`compress label`: checks the rows, says what the answers cost, asks the service, and writes the data files."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from compress.console import Console
from compress.environment import require
from compress.errors import DataError, pluralize
from compress.label.answer_cache import AnswerCache, Wanted, answers_file
from compress.label.ask_service import Asker, Pace, Sample
from compress.label.chat_client import ChatClient, ServiceFailure, read_key
from compress.label.label_files import check_target, write_files
from compress.label.label_schema import LabelRecipe
from compress.label.label_task import BlankRow, LabelTask
from compress.label.prompt_and_answer import form_of
from compress.label.service_info import ServiceInfo
from compress.label.spending import LabelForecast, LimitReached, Spending, describe_spending, forecast

KEEP = "--answered writes what is answered so far"


def label(
    recipe: LabelRecipe,
    target: Path,
    console: Console,
    *,
    answered: bool = False,
    retry_refused: bool = False,
    pace: Pace | None = None,
) -> ServiceInfo:
    """Label the rows of ``recipe`` and write the data files and service.json into the folder ``target``.

    Args:
        recipe: what is asked, and where.
        target: the folder to write; one that this command wrote before is replaced.
        console: shows the forecast and the progress.
        answered: send nothing, and write the rows that are answered already.
        retry_refused: ask again about texts that the service refused.
        pace: when requests may be sent; by default what the recipe says.

    Raises:
        CompressError: with what is done and how to go on; every answer that was paid for is kept.
    """
    check_target(target)
    if not answered:
        require("openai", "label")
        read_key(recipe)
    task = LabelTask(recipe, console)
    with closing(open_cache(recipe)) as cache:
        rows, blank = survey(task, cache)
        if retry_refused:
            cache.forget_refusals()
        expected = forecast(recipe, rows, cache)
        console.note(expected.text)
        if expected.requests and not answered:
            ask(task, cache, expected, console, pace or Pace(recipe.requests_per_minute))
        info, left_out = write_files(task, cache, target, blank)
        for reason in left_out:
            console.warn(reason)
        return info


def dry_run(recipe: LabelRecipe, console: Console) -> LabelForecast:
    """Return what labelling would ask and cost; nothing is sent."""
    with closing(open_cache(recipe)) as cache:
        rows, _ = survey(LabelTask(recipe, console), cache)
        return forecast(recipe, rows, cache)


def open_cache(recipe: LabelRecipe) -> AnswerCache:
    """Return the answers of all services, with what ``recipe`` wants of each text."""
    return AnswerCache(answers_file(), Wanted(recipe.samples, recipe.attempts, recipe.answer_tokens))


@dataclass
class SkippedRows:
    """Rows that are left out, since they are blank or do not fit the task: how many, and the first."""

    count: int = 0
    blank: int = 0
    first: str = ""

    def __call__(self, fault: DataError) -> None:
        """Count one."""
        self.count += 1
        self.blank += isinstance(fault, BlankRow)
        self.first = self.first or fault.message


def survey(task: LabelTask, cache: AnswerCache) -> tuple[int, int]:
    """Read every row, so that a broken one is found before money is spent; return how many there are, and are blank."""
    rows, skipped = 0, SkippedRows()
    for text in task.texts(skipped):
        rows += 1
        cache.add_text(text.key, sum(len(message["content"]) for message in text.messages))
    if skipped.count:
        task.console.warn(f"{pluralize(skipped.count, 'row')} left out, such as: {skipped.first}")
    if not rows:
        raise DataError("the data has no row that can be labelled.")
    return rows, skipped.blank


def ask(task: LabelTask, cache: AnswerCache, expected: LabelForecast, console: Console, pace: Pace) -> None:
    """Ask for every missing sample; if that fails half-way, say how far it is."""
    recipe = task.recipe
    client = ChatClient(recipe, form_of(recipe).schema(recipe))
    asker = Asker(recipe, client, cache, Spending(recipe.limit, expected.spent or 0.0), pace, expected.answered)
    with closing(client), console.progress(expected.requests, "labelling", "answers") as progress:
        try:
            asker.ask_all(missing_samples(task, cache), progress)
        except LimitReached as error:
            hint = f"--set limit={2 * (recipe.limit or 0):g} goes on where it stopped; {KEEP}"
            raise LimitReached(f"{error.message}. {_state(recipe, cache, expected)}", hint) from None
        except ServiceFailure as error:
            hint = error.hint or f"the same command goes on where it stopped; {KEEP}"
            raise ServiceFailure(f"{error.message} {_state(recipe, cache, expected)}", hint) from None


def missing_samples(task: LabelTask, cache: AnswerCache) -> Iterator[Sample]:
    """Yield the samples that have no valid answer and may be asked for."""
    for text in task.texts():
        for number in cache.missing_samples(text.key):
            yield Sample(text.key, number, text.messages)


def _state(recipe: LabelRecipe, cache: AnswerCache, expected: LabelForecast) -> str:
    """Return how many answers there are, of how many."""
    used = cache.usage()
    wanted = expected.texts * recipe.samples
    return f"{used.answers:,} of {pluralize(wanted, 'answer')} are stored, {describe_spending(recipe, used)}."
