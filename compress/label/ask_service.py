"""Asks a service for missing answers: several at a time, again where it was busy or its answer is no label."""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from compress.console import Progress, duration
from compress.errors import CompressError, pluralize
from compress.label.answer_cache import Answer, AnswerCache
from compress.label.answer_forms import ANSWER_FORMS
from compress.label.chat_client import Busy, ChatClient, Refused, ServiceFailure
from compress.label.pace import Pace, Stopped, back_off
from compress.label.prompt import Messages
from compress.label.spending import Spending, cost
from compress.recipe.label_schema import LabelRecipe

LONGEST_PAUSE = 600.0
"""Seconds; a service that asks for a longer pause is asked again by the next command."""
HOPELESS = 20
"""If so many samples are invalid before any is valid, the prompt or the model does not fit the task."""


@dataclass(frozen=True)
class Sample:
    """One answer that is missing."""

    key: str
    number: int
    attempts: int
    """Invalid answers so far."""
    messages: Messages

    @property
    def characters(self) -> int:
        """Of the prompt."""
        return sum(len(message["content"]) for message in self.messages)


@dataclass
class Asker:
    """Gets the answers of a recipe's service and stores them."""

    recipe: LabelRecipe
    client: ChatClient
    cache: AnswerCache
    spending: Spending
    pace: Pace
    valid: int = 0
    invalid: int = 0

    def ask_all(self, samples: Iterable[Sample], progress: Progress) -> None:
        """Ask for samples: the first alone, since it shows whether the service can be used, then several at once.

        However many samples there are, only a few are held at a time. When one fails for good no other is begun, and
        the answers to those that were sent are stored.
        """
        running: dict[Future[None], tuple[str, int]] = {}
        with ThreadPoolExecutor(self.recipe.concurrency) as pool:
            try:
                for sample in samples:
                    identity = (sample.key, sample.number)
                    if identity in running.values():  # a text that the data holds twice
                        continue
                    running[pool.submit(self.ask, sample)] = identity
                    if not self.client.has_answered or len(running) > self.recipe.concurrency:
                        self._collect(running, progress)
                while running:
                    self._collect(running, progress)
            except BaseException:
                self.pace.stop.set()
                pool.shutdown(cancel_futures=True)
                raise

    def _collect(self, running: dict[Future[None], tuple[str, int]], progress: Progress) -> None:
        """Wait for a request to end; raise its failure."""
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            del running[future]
        for future in done:
            future.result()
            spent = f"{self.spending.spent:.4f} spent" if self.recipe.prices else ""
            progress.advance(note=spent)
        if self.invalid >= HOPELESS and not self.valid:
            shown = (self.cache.example_invalid() or "")[:80]
            raise ServiceFailure(
                f"none of the first {self.invalid} answers is one of the labels, such as {shown!r}.",
                hint="answer_tokens may be too few for this model, or the prompt asks for something else;"
                f" --set attempts={2 * self.recipe.attempts} asks for the same texts again",
            )

    def ask(self, sample: Sample) -> None:
        """Ask until an answer is valid, and store every answer."""
        try:
            for attempt in range(sample.attempts, self.recipe.attempts):
                answer = self._paid_answer(sample)
                self.cache.add(sample.key, sample.number, attempt, sample.characters, answer)
                if answer.valid:
                    self.valid += 1
                    return
        except (Refused, Stopped):
            return
        except CompressError:
            self.pace.stop.set()
            raise
        self.invalid += 1

    def _paid_answer(self, sample: Sample) -> Answer:
        """Return the service's answer, valid or not; where it is busy wait as long as it asks, or longer each time."""
        for retry in range(self.recipe.endpoint.retries + 1):
            try:
                return self._answer_within_limit(sample)
            except Busy as busy:
                failure = busy
            pause = back_off(retry) if failure.wait is None else failure.wait
            if (failure.absent and not self.client.has_answered) or pause > LONGEST_PAUSE:
                break
            if retry < self.recipe.endpoint.retries:
                if failure.wait is not None:
                    self.pace.pause(pause)
                self.pace.sleep(pause)
        again = f" after {pluralize(retry + 1, 'request')}" if retry else ""
        wish = f"; it asks to wait for {duration(failure.wait)}" if failure.wait and pause > LONGEST_PAUSE else ""
        raise ServiceFailure(f"{self.recipe.endpoint.url} does not answer{again}: {failure.reason}{wish}.")

    def _answer_within_limit(self, sample: Sample) -> Answer:
        """Send one request if its highest price is within the limit, and count what it cost.

        A request whose answer was lost on the way may have been charged: it counts at its highest price.
        """
        most_input, most_output = self.most_tokens(sample)
        most = actual = cost(self.recipe.prices, most_input, most_output) or 0.0
        self.pace.wait_for_turn()
        self.spending.reserve(most)
        try:
            self.pace.sleep(0.0)  # another request may have failed while this one waited for the limit
            reply = self.client.ask(sample.messages)
            stated = reply.input_tokens is not None and reply.output_tokens is not None
            given, made = (reply.input_tokens or 0, reply.output_tokens or 0) if stated else (most_input, most_output)
            actual = cost(self.recipe.prices, given, made) or 0.0
        except Busy as busy:
            actual = most if busy.maybe_paid else 0.0
            raise
        except (Refused, ServiceFailure, Stopped):
            actual = 0.0
            raise
        finally:
            self.spending.settle(most, actual)
        valid = reply.complete and ANSWER_FORMS[self.recipe.task.kind].parse(reply.text, self.recipe) is not None
        return Answer(reply.text, valid, given, made, stated)

    def most_tokens(self, sample: Sample) -> tuple[int, int]:
        """Return upper bounds of the tokens of one request and its answer.

        No tokenizer in use makes more tokens than a text has bytes; the schema and the marks of messages count too.
        """
        form = ANSWER_FORMS[self.recipe.task.kind]
        prompt = json.dumps([sample.messages, form.schema(self.recipe)], ensure_ascii=False)
        return len(prompt.encode()), self.recipe.answer_tokens
