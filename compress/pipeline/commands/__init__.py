"""The library functions behind single commands: plan, export, ls, init, clean, run --smoke."""
