"""Asks a service for missing answers: several at a time, at the pace it allows, again where an answer is no label."""

import json
import math
import random
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Event, Lock

from compress.console import Progress, duration
from compress.errors import CompressError, pluralize
from compress.label.answer_cache import Answer, AnswerCache
from compress.label.chat_client import COMPLETE, CUT_OFF, Busy, ChatClient, Refused, Reply, ServiceFailure
from compress.label.label_schema import LabelRecipe
from compress.label.prompt_and_answer import Messages, form_of
from compress.label.spending import Spending, cost

FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
"""Seconds before a request is repeated the first time, and at most; doubled from one time to the next."""


class Stopped(Exception):
    """Another request failed for good: this one is not sent."""


class Pace:
    """Shared by all requests of a command; ``stop`` ends every wait."""

    def __init__(
        self,
        requests_per_minute: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[Event, float], bool] = Event.wait,
    ) -> None:
        self.stop = Event()
        self._interval = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._next, self._lock, self._clock, self._wait = 0.0, Lock(), clock, wait
        self._paused_until = 0.0

    def wait_for_turn(self) -> None:
        """Return when a request may be sent; raises `Stopped` if none may be sent any more."""
        turn = -math.inf
        while turn < self._paused_until:  # a pause that began meanwhile is for all that wait
            with self._lock:
                turn = max(self._next, self._clock())
                self._next = turn + self._interval
            self.sleep(turn - self._clock())

    def pause(self, seconds: float) -> None:
        """Send no request before so many seconds have passed: the service is busy for all of them."""
        with self._lock:
            self._paused_until = max(self._paused_until, self._clock() + seconds)
            self._next = max(self._next, self._paused_until)

    def sleep(self, seconds: float) -> None:
        """Wait, unless the command stops."""
        if self.stop.is_set() or (seconds > 0 and self._wait(self.stop, seconds)):
            raise Stopped


def back_off(retry: int) -> float:
    """Return the seconds before a request is repeated for the ``retry``-th time, from 0.

    Half of it is random, so that requests which failed together do not come back together.
    """
    return float(min(LONGEST_WAIT, FIRST_WAIT * 2**retry) * random.uniform(0.5, 1.0))


LONGEST_PAUSE = 600.0
"""Seconds; a service that asks for a longer pause is asked again by the next command."""
HOPELESS = 20
"""If so many samples have no valid answer before any has, the prompt or the model does not fit the task."""
MOST_UNANSWERED = 5
"""Texts in a row without an answer that may be the texts' own fault; with the next one the service has failed."""
HOPELESS_REFUSALS = 5
"""If so many texts are refused before anything is answered, it is not their content."""


class Unanswered(Exception):
    """A text has no answer though others have one: it is left out."""


@dataclass(frozen=True)
class Sample:
    """One answer that is missing."""

    key: str
    number: int
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
    valid: int
    """Valid answers to the recipe's texts, those of earlier commands included."""
    invalid: int = 0
    """Samples that are given up since their answers are no labels, or the model declines."""
    cut_off: int = 0
    refused: list[str] = field(default_factory=list)
    """The keys of texts that were refused before anything was answered."""
    unanswered: dict[str, str] = field(default_factory=dict)
    """By the key of each text that got no answer since the last one that did, the reason."""
    lock: Lock = field(default_factory=Lock)

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
                self._leave_out_unanswered()
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
        if self.invalid + self.cut_off >= HOPELESS and not self.valid:
            raise self._hopeless()

    def _hopeless(self) -> ServiceFailure:
        """Return why no sample has a valid answer."""
        recipe, count = self.recipe, self.invalid + self.cut_off
        if self.cut_off > self.invalid:
            return ServiceFailure(
                f"{self.cut_off} of the first {count} answers were cut off at {recipe.answer_tokens} tokens.",
                hint=f"models that think before they answer need more: --set answer_tokens={4 * recipe.answer_tokens}",
            )
        example = (self.cache.example_invalid() or "")[:80]
        return ServiceFailure(
            f"none of the first {count} answers is {form_of(recipe).expected}, such as {example!r}.",
            hint=f"the prompt may ask for something else; --set attempts={2 * recipe.attempts} asks for the same texts"
            " again",
        )

    def ask(self, sample: Sample) -> None:
        """Ask until an answer is valid, cut off or a refusal, and store every answer."""
        asked = False
        try:
            while sample.number in self.cache.missing_samples(sample.key):
                answer, asked = self._repeated(sample), True
                self._leave_out_unanswered()
                if answer.valid:
                    self.valid += 1
                    return
                if answer.cut_off_at:  # asking again with the same limit would be cut off again
                    self.cut_off += 1
                    return
        except (Stopped, Unanswered):
            return
        except Refused as refusal:
            self._note_refusal(sample, refusal)
            return
        except CompressError:
            self.pace.stop.set()
            raise
        self.invalid += asked  # otherwise it was refused meanwhile, or another command has asked

    def _note_refusal(self, sample: Sample, refusal: Refused) -> None:
        """Remember that a text is refused, unless all are: then the service cannot be used like this."""
        self.cache.add_refusal(sample.key, str(refusal))
        if self.client.has_answered or self.valid:
            return
        self.refused.append(sample.key)
        if len(self.refused) == HOPELESS_REFUSALS:
            for key in self.refused:
                self.cache.forget_refusal(key)
            self.pace.stop.set()
            message = f"{self.recipe.endpoint.url} refuses the first {HOPELESS_REFUSALS} texts, such as: {refusal}."
            hint = "some models know no temperature but 1 (--set temperature=1); if it is the texts, put others first"
            raise ServiceFailure(message, hint)

    def _repeated(self, sample: Sample) -> Answer:
        """Return the service's answer, valid or not; where it is busy wait as long as it asks, or longer each time."""
        for retry in range(self.recipe.endpoint.retries + 1):
            try:
                return self._within_limit(sample)
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
        message = f"{self.recipe.endpoint.url} does not answer{again}: {failure.reason}{wish}."
        with self.lock:
            is_down = failure.absent or failure.limited or not self.client.has_answered
            if wish or is_down or len(self.unanswered) >= MOST_UNANSWERED:
                raise ServiceFailure(message)
            self.unanswered[sample.key] = message
        raise Unanswered

    def _leave_out_unanswered(self) -> None:
        """Store texts without an answer as refused, once the service has answered another one."""
        with self.lock:
            for key, reason in self.unanswered.items():
                self.cache.add_refusal(key, reason)
            self.unanswered.clear()

    def _within_limit(self, sample: Sample) -> Answer:
        """Send one request if its highest price is within the limit, and store its answer with what it cost.

        A request whose answer was lost on the way may have been charged: it counts at its highest price.
        """
        most_input, most_output = self.most_tokens(sample)
        most, actual = cost(self.recipe.prices, most_input, most_output) or 0.0, 0.0
        self.pace.wait_for_turn()
        self.spending.reserve(most)
        try:
            self.pace.sleep(0.0)  # another request may have failed while this one waited for the limit
            request = self.cache.begin_request(sample.key, most_input, most_output)
            actual = most
            try:
                reply = self.client.ask(sample.messages)
            except (Busy, Refused, ServiceFailure) as failure:
                if not (isinstance(failure, Busy) and failure.maybe_paid):
                    self.cache.cancel_request(request)
                    actual = 0.0
                raise
            answer = self._answer(reply, most_input, most_output)
            actual = cost(self.recipe.prices, answer.input_tokens, answer.output_tokens) or 0.0
            self.cache.add(request, sample.number, sample.characters, answer)
            if reply.refused:
                self.cache.add_refusal(sample.key, self.client.shown(reply.text) or reply.end)
            return answer
        finally:
            self.spending.settle(most, actual)

    def _answer(self, reply: Reply, most_input: int, most_output: int) -> Answer:
        """Return what is stored of a reply: a valid answer is a label and nothing else; others may repeat the key."""
        parsed = form_of(self.recipe).parse(reply.text, self.recipe)
        valid = reply.end == COMPLETE and parsed is not None
        text = reply.text if valid else self.client.hide_key(reply.text)
        cut_off_at = self.recipe.answer_tokens if reply.end == CUT_OFF else None
        if reply.input_tokens is None or reply.output_tokens is None:
            return Answer(text, valid, most_input, most_output, False, cut_off_at)
        return Answer(text, valid, reply.input_tokens, reply.output_tokens, True, cut_off_at)

    def most_tokens(self, sample: Sample) -> tuple[int, int]:
        """Return upper bounds of the tokens of one request and its answer.

        No tokenizer in use makes more tokens than a text has bytes; the schema and the marks of messages count too.
        """
        form = form_of(self.recipe)
        prompt = json.dumps([sample.messages, form.schema(self.recipe)], ensure_ascii=False)
        return len(prompt.encode()), self.recipe.answer_tokens
