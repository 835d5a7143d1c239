"""The contract of a task kind, in numpy alone: how rows are read, what the model sees, and how it is scored.

A **row** is what the user counts (one line of a file, one question). ``read_row`` checks a raw row and makes it
canonical: the same few fields whatever the file's headers. A row gives one or more **examples** (windows, choices,
candidates), the model's inputs. ``collate`` pads examples into a batch; ``decode`` reduces a batch's outputs to what is
needed of each example; ``predictions`` combines those into one prediction per row, which metrics compare with ``gold``.
Adding a kind is one file with one such object, and one line in ``tasks/__init__.py``.
"""

from __future__ import annotations

from compress.model_info import TaskInfo
from compress.tasks.model_interface import ModelInterface
from compress.tasks.row_reader import RowReader
from compress.tasks.scorer import Scorer


class Kind(RowReader, ModelInterface, Scorer):
    """A kind reads rows, describes its model and scores predictions; code that needs one of these takes its part."""

    name: str

    def in_windows(self, task: TaskInfo) -> bool:
        """Return whether long texts are read in windows: where the kind has an `overlap`, unless they are cut."""
        return "overlap" in self.settings and ("long" not in self.settings or task.long != "cut")

    def unit_name(self, task: TaskInfo) -> str:
        """Return what the model processes one of at a time: a window, or the kind's ``example``."""
        return "window" if self.in_windows(task) else self.example
