"""Quality, speed and size of any model folder or variant, with intervals and the conditions of measuring."""

from compress.measure.quality.bootstrap_scorer import BootstrapScorer
from compress.measure.quality.quality_result import Quality
from compress.measure.quality.score_model import score_model
from compress.measure.timing.latency import Job, Latency, ratio
from compress.measure.timing.timing_session import time_jobs

__all__ = ["BootstrapScorer", "Job", "Latency", "Quality", "ratio", "score_model", "time_jobs"]
