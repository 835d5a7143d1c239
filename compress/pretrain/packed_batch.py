"""The arrays of a batch of packed sequences."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compress.batch_arrays import ATTENTION_MASK, BATCH_POSITIONS, INPUT_ARRAYS, BatchArray

MASKABLE = "maskable"
"""0 at special pieces and padding."""
WORD_START = "word_start"
"""1 at the first piece of a word."""
NEXT_SENTENCE = "next_sentence"
"""Of a pair (rows,): 0 where the second part follows the first, 1 where it is from another document, as in BERT."""

PACKED_ARRAYS: Mapping[str, BatchArray] = {
    array.name: array
    for array in (
        *INPUT_ARRAYS,
        ATTENTION_MASK,
        BatchArray(MASKABLE, "token", np.int64),
        BatchArray(WORD_START, "token", np.int64),
        BatchArray(NEXT_SENTENCE, "example", np.int64),
        *BATCH_POSITIONS,
    )
}
"""Those that a batch may hold: `token_type_ids` where the model reads them, `next_sentence` where pairs are made."""
