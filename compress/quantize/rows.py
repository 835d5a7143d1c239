"""Tables of 8 or 4 bits for models without attention, whose vectors are nearly all they consist of.

Each row of 8 bits has a scale of 16 bits, each block of 32 values of 4 bits too; the head's matrices have 8 bits in
both. Nothing is rounded when the model runs, so that a row's outputs depend on no other row.
"""

from functools import partial

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from compress.export.build_context import BuildContext
from compress.formats import FORMATS
from compress.model_folder.model_info import FolderInfo, read_info
from compress.quantize.embeddings_4bit import four_bits, packed
from compress.quantize.quantize_export import write_rounded
from compress.runtime import open_predictor
from compress.runtime.numpy_runtime import PACKED, SCALE
from compress.storage.safetensors_file import read_arrays

TABLES = ("pieces", "ngrams")
"""What has 4 bits, where the method says so."""
HIGHEST = 127
LEAST_VALUES = 1_000
"""Arrays with fewer stay as they are."""


def quantize_rows(context: BuildContext, bits: int) -> FolderInfo:
    """Write the tables of an exported folder in fewer bits, and compare its outputs with its source's.

    Args:
        context: of the build; its source is a folder that `export_numpy` wrote.
        bits: of a value of a table, 8 or 4.
    """
    name = FORMATS["numpy"].files[0]
    arrays = read_arrays(context.source / name)
    rounded: dict[str, NDArray[np.generic]] = {}
    for key, values in arrays.items():
        if bits == 4 and key in TABLES and values.shape[1] % 2 == 0:
            integers, scales = four_bits(values)
            rounded |= {key + PACKED: packed(integers), key + SCALE: scales}
        elif values.ndim == 2 and values.size >= LEAST_VALUES:
            integers, scale = eight_bits(values)
            rounded |= {key: integers, key + SCALE: scale}
        else:
            rounded[key] = values.astype(np.float16)
    save_file({key: np.ascontiguousarray(values) for key, values in rounded.items()}, context.work / name)
    return write_rounded(context, read_info(context.source), open_predictor(context.source))


quantize_rows_8bit, quantize_rows_4bit = partial(quantize_rows, bits=8), partial(quantize_rows, bits=4)


def eight_bits(rows: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Return rows (rows, width) as integers from -127 to 127, and the scale of each (rows,)."""
    scales = (np.abs(rows).max(axis=1) / HIGHEST).astype(np.float16)
    divisors = np.where(scales > 0, scales, 1).astype(np.float32)[:, None]
    return np.clip(np.rint(rows / divisors), -HIGHEST, HIGHEST).astype(np.int8), scales
