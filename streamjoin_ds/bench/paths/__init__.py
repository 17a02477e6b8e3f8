"""The same input by several ways, each in a process of its own: batch joins on a fixed table of workloads."""
