"""The money that answers cost: what labelling will cost, before anything is sent, and the limit, never exceeded."""

import json
from dataclasses import dataclass
from threading import Condition

from compress.errors import CompressError, pluralize
from compress.label.answer_cache import AnswerCache, Usage
from compress.label.label_schema import LabelRecipe, Prices

MILLION = 1_000_000


class LimitReached(CompressError):
    """The next request could exceed the recipe's limit."""


def cost(prices: Prices | None, input_tokens: float, output_tokens: float) -> float | None:
    """Return the price of so many tokens; None where no prices are stated."""
    if prices is None:
        return None
    return (input_tokens * prices.input + output_tokens * prices.output) / MILLION


class Spending:
    """Counts what was spent; a request may begin only if it fits below the limit at its highest possible price."""

    def __init__(self, limit: float | None, spent: float) -> None:
        self.limit, self.spent = limit, spent
        self._reserved, self._running, self._change = 0.0, 0, Condition()

    def reserve(self, most: float) -> None:
        """Set aside the highest price of a request; waits for running requests, which may turn out cheaper.

        Raises:
            LimitReached: if it does not fit although nothing else is running.
        """
        with self._change:
            while self.limit is not None and self.spent + self._reserved + most > self.limit:
                if not self._running:
                    message = f"the limit of {self.limit:g} is reached: {self.spent:.4f} is spent, and the next"
                    raise LimitReached(f"{message} request may cost {most:.4f}")
                self._change.wait()
            self._running += 1
            self._reserved += most

    def settle(self, most: float, actual: float) -> None:
        """Replace what was set aside for a request by what it cost."""
        with self._change:
            self._running -= 1
            self._reserved = self._reserved - most if self._running else 0.0
            self.spent += actual
            self._change.notify_all()


CHARACTERS_PER_TOKEN = 4.0
"""Of English in the usual tokenizers; other languages and much punctuation have fewer."""


@dataclass(frozen=True)
class LabelForecast:
    """What is missing, with an estimate of its tokens and its cost."""

    rows: int
    texts: int
    """Different ones: a text that occurs twice is asked about once."""
    answered: int
    """Answers of earlier runs."""
    refused: int
    """Texts that the service refused, which are not asked about again."""
    requests: int
    input_tokens: float
    output_tokens: float
    estimated_from: str
    spent: float | None
    """What earlier runs paid for these texts, lost answers at their highest price; None without prices."""
    lost: int
    """Requests of earlier runs whose answer was lost, which may have been charged."""
    cost: float | None
    """What the missing ones will cost, estimated."""
    limit: float | None

    @property
    def text(self) -> str:
        """What is expected, in one paragraph."""
        counts = f"{pluralize(self.rows, 'row')}, {pluralize(self.texts, 'different text')}"
        parts = [f"{counts}: {pluralize(self.requests, 'request')}, {pluralize(self.answered, 'answer')} cached"]
        if self.refused:
            parts.append(f"{pluralize(self.refused, 'text')} refused earlier and left out (--retry-refused asks again)")
        if self.requests:
            tokens = f"{self.input_tokens:,.0f} tokens of prompts and {self.output_tokens:,.0f} of answers"
            parts.append(f"about {tokens} ({self.estimated_from})")
        if self.cost is None:
            parts.append("no prices are stated (prices: {input: …, output: …}), so the cost is unknown")
        else:
            limit = f", limit {self.limit:g}" if self.limit else ""
            lost = f" ({pluralize(self.lost, 'lost answer')} at the highest price)" if self.lost else ""
            parts.append(f"about {self.cost:.4f} to spend, {self.spent:.4f} spent before{lost}{limit}")
            if self.limit and self.requests and (self.spent or 0.0) + self.cost > self.limit:
                parts.append("the limit will stop it before the end")
        return "; ".join(parts)


def forecast(recipe: LabelRecipe, rows: int, cache: AnswerCache) -> LabelForecast:
    """Return the forecast for the texts that were added to ``cache``."""
    (texts, characters), used = cache.count_texts(), cache.usage()
    requests = texts * recipe.samples - used.finished
    per_token, per_answer, source = _rates(recipe, used)
    given, made = requests * characters / max(texts, 1) / per_token, requests * per_answer
    return LabelForecast(
        rows=rows,
        texts=texts,
        answered=used.answers,
        refused=used.refused,
        requests=requests,
        input_tokens=round(given),
        output_tokens=round(made),
        estimated_from=source,
        spent=spent_on(recipe, used),
        lost=used.lost,
        cost=cost(recipe.prices, given, made),
        limit=recipe.limit,
    )


def _rates(recipe: LabelRecipe, used: Usage) -> tuple[float, float, str]:
    """Return characters a token, tokens an answer, and where both are from."""
    if used.valid and used.stated and used.input_tokens:
        source = f"as measured on {pluralize(used.valid, 'answer')}"
        return used.characters / used.input_tokens, used.output_tokens / used.valid, source
    longest = json.dumps({"labels": max(recipe.task.labels or ("-1.23",), key=len)})
    source = f"estimated as {CHARACTERS_PER_TOKEN:g} characters a token"
    return CHARACTERS_PER_TOKEN, len(longest) / CHARACTERS_PER_TOKEN, source


def spent_on(recipe: LabelRecipe, used: Usage) -> float | None:
    """Return what was paid for texts, lost answers at their highest price; None without prices."""
    given, made = used.input_tokens + used.lost_input_tokens, used.output_tokens + used.lost_output_tokens
    return cost(recipe.prices, given, made)


def describe_spending(recipe: LabelRecipe, used: Usage) -> str:
    """Return `3.1200 spent`; without prices the tokens instead."""
    spent = spent_on(recipe, used)
    millions = (used.input_tokens + used.output_tokens) / MILLION
    return f"{millions:.3f} million tokens" if spent is None else f"{spent:.4f} spent"
