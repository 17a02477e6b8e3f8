"""A cell of the grid inside a Python worker: references in, files of matches out, windows kept between batches."""
