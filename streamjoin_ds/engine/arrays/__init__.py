"""Columns and keys as kernels know them, memory for them, and the kernels themselves."""
