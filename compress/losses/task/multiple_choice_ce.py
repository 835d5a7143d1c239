"""Multiple choice: cross-entropy of the right choice among the choices of a row."""

from torch import Tensor

from compress.losses.tensor_ops.logit_views import choice_view
from compress.losses.tensor_ops.row_groups import RowGroups, Tensors


def multiple_choice_ce(outputs: Tensors, batch: Tensors, pooling: str) -> Tensor:
    """Return ``-log softmax(z)[right]`` over the scores z of each row's choices, as a mean over rows.

    Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", 2018
    (arXiv:1810.04805), section 4.4. Rows may have different numbers of choices; a single choice has
    loss zero, since its softmax is one.

    Args:
        outputs: `logits` (examples, 1): an example is a question with one of its choices.
        batch: `labels` (examples,) float32, 1 for the right choice and 0 for others; `group` (examples,).
        pooling: not used.
    """
    (view,) = choice_view(outputs, batch, pooling)
    right = RowGroups.from_batch(batch).pad(batch["labels"].float())
    return -(view.logits.log_softmax(dim=1) * right).sum(dim=1).mean()
