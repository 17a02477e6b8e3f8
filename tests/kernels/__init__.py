"""The kernels' tests: one set of cases, run over every implementation and the NumPy twin, decided by plain Python."""
