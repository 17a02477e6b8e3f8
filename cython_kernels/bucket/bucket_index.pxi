# A bucket grid among the runs of a window.

cdef class BucketIndex(RunIndex):
    """A bucket grid as `RunsProbe` takes it; see streamjoin_ds.engine.kernels.twins.bucket.BucketIndex."""

    def __init__(self, grid, right, lo, hi, *, keys):
        cdef int place
        cdef BucketGrid owner
        cdef sj_bucket_columns *columns = &self._index.bucket_columns
        if not isinstance(grid, BucketGrid):
            raise _error("grid must be a BucketGrid", "grid")
        owner = grid
        right, lo, hi, keys = list(right), list(lo), list(hi), list(keys)
        if not len(right) == len(lo) == len(hi):
            raise _error("right, lo and hi differ in length", "right")
        if len(right) > SJ_MAX_CONDITIONS:
            raise _error("more than 16 conditions", "right")
        if len(keys) != owner._grid.key_count or any(not -1 <= number < len(right) for number in keys):
            raise _error("keys must name a condition, or -1, for each key of the grid", "keys")
        served = [number for number in keys if number >= 0]
        if len(set(served)) < len(served):
            raise _error("one condition cannot serve two keys", "keys")
        memset(&self._index, 0, sizeof(self._index))
        self._kept = [owner]
        self._index.conditions = columns.conditions = len(right)
        # Of the conditions on items of one kind, those that serve the grid's keys come first: they leave fewest rows.
        order = list(served)
        order += [number for number in range(len(right)) if number not in order]
        for place, number in enumerate(order):
            self._set_condition(place, number, owner, right[number], lo[number], hi[number])
        for place, number in enumerate(keys):
            columns.key_condition[place] = order.index(number) if number >= 0 else -1
            if number >= 0 and columns.is_float[order.index(number)] != owner._grid.keys[place].is_float:
                raise _error("a key is of another type than its condition", "keys")
        self._index.bucket_grid = &owner._grid

    cdef int _set_condition(self, int place, int condition, BucketGrid owner, right, lo, hi) except -1:
        cdef sj_run_index *index = &self._index
        cdef sj_bucket_columns *columns = &index.bucket_columns
        cdef int slot
        found = [at for at, column in enumerate(owner.columns) if column is right]
        kind = right.dtype.str[1:] if found else ""
        if kind not in _ITEMS:
            raise _error("right must be columns of the grid", "right", "float64 or float32, int64 or int32")
        cdef bint is_float = kind[0] == "f"
        slot = index.band.float_count if is_float else index.band.int_count
        columns.is_float[place], columns.slot[place], columns.item[place] = is_float, slot, _ITEMS[kind]
        columns.right[place] = <const void *>owner._grid.columns[found[0]]
        index.is_float[condition], index.slot[condition] = is_float, slot
        if is_float:
            _set_float_ends(&index.band, slot, lo, hi)
            index.band.float_count = slot + 1
        else:
            index.band.int_lo[slot], index.band.int_hi[slot] = _wide_bound(lo, "lo"), _wide_bound(hi, "hi")
            index.band.int_count = slot + 1
        return 0

GRID_CHUNK_ROWS = SJ_CHUNK_ROWS
