"""Speed of distillation compared with TextBrewer, torchdistill and a plain loop doing the same job.

`python -m benchmarks.distill_throughput` prints the tables and writes report.json and report.md; benchmarks/README.md
describes each contestant and how they were made comparable.
"""
