"""How much work a linear probe is: at most a tenth of the training that follows it.

Work is counted in operations of matrix products, so that it is the same on every machine, and a plan can state it. Both
parts of a probe grow with the rows of train: encoding them takes one forward pass of the encoder, and fitting the last
layer takes many evaluations of its loss, each over all features (texts) or all tokens (tags) and all outputs. With two
classes that is nothing beside the encoder; with 159 tags or 1,000 classes it is more than the training itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from compress.measure.resources.footprint import flops_per_token
from compress.model_folder.model_info import ShapeInfo
from compress.recipe.training_schema import EpochBounds, Training, number

SHARE = 0.1
"""Of the operations of the training that follows, the most that a probe takes."""
FREE = 2e12
"""Operations that every probe may take: below a minute of one core. Small sets have the most thorough search."""
STRENGTHS = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 3e-4, 1e-4, 3e-5, 1e-5)
"""Weights of the squared norm beside the mean loss, strongest first: each fit starts from the one before it."""
LEAST_SAMPLE = 0.2
"""Share of the encoded rows on which strengths are compared at least."""
OUTPUT_OVERHEAD = 400
"""What the loss of one output and its gradient cost besides matrix products, in operations of these: exponentials, and
reading and writing the outputs. A rough value, from MiniLM's features of intents and tags on an AMD EPYC."""
FEATURE_OVERHEAD = 100
"""The same of reading one feature twice."""

TOKEN_HEADS = ("token-classification", "question-answering")
"""Heads whose last layer reads every token; that of others reads one vector an example."""


@dataclass(frozen=True)
class Search:
    """How the strength of the penalty is chosen, and the layer fitted with it."""

    folds: int = 3
    """Parts of the sample that are held out in turn."""
    held_out: int = 3
    """How many of them are."""
    strengths: tuple[float, ...] = STRENGTHS
    iterations: int = 30
    """Of L-BFGS, for each strength and fold."""
    last_iterations: int = 30
    """Of L-BFGS on all rows with the best strength."""
    sample: float = 1.0
    """Share of the encoded rows on which strengths are compared."""
    rows: float = 1.0
    """Share of the rows that are encoded."""

    @property
    def compared(self) -> float:
        """How often the loss of the sample is computed at most, each with its gradient."""
        fits = (self.folds - 1) / self.folds * evaluations_of(self.iterations)
        return len(self.strengths) * self.held_out * (fits + 1 / self.folds)

    @property
    def evaluations(self) -> float:
        """The same of all encoded rows, with those of the last fit."""
        return self.sample * self.compared + evaluations_of(self.last_iterations)


def evaluations_of(iterations: int) -> int:
    """Return the most evaluations of the loss in so many iterations of L-BFGS: a line search may need several."""
    return most_evaluations(iterations) + 3


def most_evaluations(iterations: int) -> int:
    """Return after how many evaluations L-BFGS begins no further iteration."""
    return iterations * 5 // 4


THOROUGH = Search()
QUICK = Search(held_out=1, strengths=STRENGTHS[::2], iterations=10, sample=LEAST_SAMPLE)


@dataclass(frozen=True)
class FitWork:
    """The operations of a probe of all rows that it may read."""

    encoding: float
    """Of one forward pass over these rows."""
    evaluation: float
    """Of one evaluation of the last layer's loss over their features, with its gradient."""

    def of(self, search: Search) -> float:
        """Return the most operations of a probe."""
        return search.rows * (self.encoding + search.evaluations * self.evaluation)

    def search_within(self, budget: float | None) -> Search:
        """Return the most thorough search within a budget: strengths are compared on a sample, then rows are fewer."""
        if budget is None or self.of(THOROUGH) <= budget:
            return THOROUGH
        least = self.of(QUICK)
        if least > budget:
            return replace(QUICK, rows=budget / least)
        return replace(QUICK, sample=min(1.0, QUICK.sample + (budget - least) / self.evaluation / QUICK.compared))


def fit_work(
    shape: ShapeInfo, layer: Sequence[int], rows: float, pieces: float, squares: float, vectors: float
) -> FitWork:
    """Return the work of a probe of so many rows.

    Args:
        shape: of the encoder.
        layer: shape of the last layer's weight: outputs and width.
        rows: of train, at most.
        pieces: mean length of a row in tokens.
        squares: mean square of that length.
        vectors: what the last layer reads of a row: each of its tokens, or one for each of its examples.
    """
    outputs, width = layer
    once = outputs * (4 * width + OUTPUT_OVERHEAD) + FEATURE_OVERHEAD * width
    return FitWork(rows * _forward(shape, pieces, squares), rows * vectors * once)


def fit_budget(
    settings: Training, shape: ShapeInfo, train_rows: int, pieces: float, squares: float, probes: int = 1
) -> float:
    """Return the operations that one of so many ``probes`` may take.

    ``settings`` have neither `auto` nor a grid. A training that ends by itself is expected half-way between its bounds.
    """
    epochs = settings.epochs
    expected = (epochs.least + epochs.most) / 2 if isinstance(epochs, EpochBounds) else number(epochs)
    rows = expected * train_rows
    if settings.max_steps:
        rows = min(rows, settings.max_steps * number(settings.batch_size) * settings.accumulate)
    return max(FREE, SHARE * 3 * rows * _forward(shape, pieces, squares) / probes)


def _forward(shape: ShapeInfo, pieces: float, squares: float) -> float:
    """Return the operations of a forward pass over one row; of other families two for each weight and token."""
    piece, pair = flops_per_token(shape) or (2 * (shape.parameters - shape.embedding_parameters), 0)
    return piece * pieces + pair * squares
