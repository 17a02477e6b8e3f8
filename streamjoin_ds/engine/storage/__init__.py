"""Windows: sealed runs, the tail of the newest tuples, what keeps them in order and what writes them down."""
