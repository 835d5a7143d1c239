"""Scripts that run an exported folder without compress, and the README.md that they are printed in."""
