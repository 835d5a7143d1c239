"""service.json: what a service is and costs, beside the answers that a small model learns to give."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, ValidationError

from compress.errors import UsageError, first_error, pluralize
from compress.label.label_schema import Prices
from compress.storage.atomic_write import write_model
from compress.storage.stored_info import up_to

SERVICE_FILE = "service.json"


class ServiceInfo(BaseModel):
    """The content of service.json; never a key, nor an address."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: Annotated[int, up_to(1)] = 1
    model: str
    kind: str
    labels: tuple[str, ...] = ()
    samples: int
    temperature: float
    texts: int
    """Rows that were answered."""
    unanswered: int
    """Rows without a valid answer, which are in no file."""
    refused: int = 0
    """Of `unanswered`, those that the service or a filter refused, or the model declined."""
    cut_off: int = 0
    """Of `unanswered`, those with an answer that was cut off at the longest allowed length."""
    blank: int = 0
    """Rows without any text, which were not sent."""
    test_rows: int
    """Of `texts`, those held back."""
    test_digest: str | None = None
    """The sha256 of test.jsonl; a recipe with this test set measures agreement with the service."""
    self_agreement: float | None = None
    """How often two answers to one text are equal, as a mean over texts; None for one sample."""
    input_tokens: float | None = None
    """Of one answer, repeated requests included; None where the service states no tokens."""
    output_tokens: float | None = None
    prices: Prices | None = None
    """For a million tokens, as the recipe stated them."""
    cost: float | None = None
    """What was paid for these rows: answers that are no longer used included, lost ones at their highest price."""
    cost_is_exact: bool = True
    """False where the service stated no tokens, or answers were lost: then `cost` is the most that was paid."""
    cost_of_million: float | None = None
    """What one answer to each of a million such texts costs."""

    @property
    def text(self) -> str:
        """What was labelled, and what it cost."""
        parts = [f"{pluralize(self.texts, 'row')} labelled by {self.model}", f"{self.test_rows:,} of them held back"]
        if self.unanswered:
            counts = {"refused by the service": self.refused, "cut off": self.cut_off}
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.items() if count)
            parts.append(f"{self.unanswered:,} without a valid answer left out{f' ({reasons})' if reasons else ''}")
        if self.blank:
            parts.append(f"{pluralize(self.blank, 'blank row')} not sent")
        if self.self_agreement is not None:
            parts.append(f"two answers to one text agree in {100 * self.self_agreement:.1f} %")
        if self.cost is not None:
            parts.append(f"cost {self.cost:.4f}{'' if self.cost_is_exact else ' at most'}")
        if self.cost_of_million is not None:
            parts.append(f"a million texts would cost {self.cost_of_million:,.2f}")
        return "; ".join(parts)


def write_service(folder: Path, info: ServiceInfo) -> None:
    """Write service.json into ``folder``."""
    write_model(folder / SERVICE_FILE, info)


def read_service(path: Path) -> ServiceInfo:
    """Read service.json from its file or its folder."""
    file = path / SERVICE_FILE if path.is_dir() else path
    try:
        return ServiceInfo.model_validate_json(file.read_bytes())
    except OSError as error:
        hint = "compress label writes it beside the data"
        raise UsageError(f"{file} cannot be read: {error.strerror or error}.", hint=hint) from error
    except ValidationError as error:
        raise UsageError(f"{file} is no service.json: {first_error(error)}") from error
