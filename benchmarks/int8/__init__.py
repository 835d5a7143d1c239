"""INT8 files of the same models compared: our methods, and those of other tools."""
