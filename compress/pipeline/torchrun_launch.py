"""Running under `torchrun` or `accelerate launch`: only training happens on all processes.

The main process decides for every training step whether it is cached or runs, and writes that to a file. The others
wait for the file, take part, and wait for the next. They never wait in a collective, because exports and measurements
in between take longer than any collective's timeout.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from compress.errors import CompressError
from compress.storage.atomic_write import atomic_write

POLL_SECONDS = 0.2

Action = Literal["run", "cached", "stop"]


@dataclass(frozen=True)
class Launch:
    """The rank of this process among those started together."""

    rank: int = 0
    world: int = 1
    identity: str = ""

    @property
    def is_main(self) -> bool:
        """Whether this process decides, writes and prints."""
        return self.rank == 0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Launch:
        """Read the launcher's variables; a plain start is a world of one.

        So is one with some of them: images of clusters may set the size of the world alone.
        """
        import psutil

        if not all(environment.get(name) for name in ("RANK", "WORLD_SIZE")):
            return cls()
        world = int(environment["WORLD_SIZE"])
        if world <= 1:
            return cls()
        marks = [environment.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")]
        one_machine = environment.get("LOCAL_WORLD_SIZE") == str(world)
        # Processes on one machine share their launcher, whose number and start no other launch has.
        marks.append(f"{os.getppid()}-{psutil.Process(os.getppid()).create_time()}" if one_machine else "")
        return cls(int(environment["RANK"]), world, "-".join(filter(None, marks)).replace("/", "_"))

    def announce(self, steps: Path, step: str, action: Action) -> None:
        """Tell the other processes what to do at a training step, or, with `stop`, that no more will come."""
        if self.world > 1:
            atomic_write(self._file(steps, step), json.dumps({"action": action}))

    def wait_for(self, steps: Path, step: str) -> Action:
        """Wait for the main process's decision about ``step``."""
        decision, stop = self._file(steps, step), self._file(steps, "stop")
        launcher = os.getppid()
        while not decision.exists():
            if stop.exists():
                return "stop"
            if os.getppid() != launcher:
                raise CompressError("the launcher of this process has ended.")
            time.sleep(POLL_SECONDS)
        action: Action = json.loads(decision.read_text())["action"]
        return action

    def _file(self, steps: Path, step: str) -> Path:
        return steps / ".launch" / self.identity / f"{step}.json"


def leave_group() -> None:
    """Leave the process group that training joined; torch warns about processes that end within it."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
