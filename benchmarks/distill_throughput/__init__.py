"""How fast is our distillation beside TextBrewer, torchdistill and a plain loop that does the same job?

`python -m benchmarks.distill_throughput` prints the tables and writes report.json and report.md; benchmarks/README.md
tells what each contestant does and how it was made comparable.
"""
