# Rows copied out of several runs; semantics: streamjoin_ds.engine.reference.runs.

cdef class RunColumns:
    """The same columns of several runs, to be gathered from; see streamjoin_ds.engine.reference.runs.RunColumns."""

    cdef sj_run_columns _columns
    cdef list _kept

    def __init__(self, runs):
        cdef int64_t run, column
        cdef sj_run_columns *made = &self._columns
        runs = [list(columns) for columns in runs]
        if made.addresses != NULL:
            raise _error("this object has columns already", "runs")
        if not runs or any(len(columns) != len(runs[0]) for columns in runs):
            raise _error("runs differ in their number of columns", "runs")
        self._kept = runs
        made.run_count, made.column_count = len(runs), len(runs[0])
        made.addresses = <const unsigned char **>calloc(made.run_count * made.column_count + 1, sizeof(void *))
        made.run_rows = <int64_t *>calloc(made.run_count, sizeof(int64_t))
        made.item_bytes = <int *>calloc(made.column_count + 1, sizeof(int))
        if made.addresses == NULL or made.run_rows == NULL or made.item_bytes == NULL:
            raise MemoryError
        for run in range(made.run_count):
            made.run_rows[run] = len(runs[run][0]) if made.column_count else 0
            for column in range(made.column_count):
                array = runs[run][column]
                if not isinstance(array, np.ndarray):
                    raise _error("a column is not an ndarray", "runs")
                _check_array(array, "runs", runs[0][column].dtype)
                if len(array) != made.run_rows[run]:
                    raise _error("columns of a run differ in length", "runs")
                if array.dtype.itemsize not in (1, 2, 4, 8, 16) or array.dtype.hasobject:
                    raise _error("column items must have 1, 2, 4, 8 or 16 bytes", "runs")
                made.item_bytes[column] = array.dtype.itemsize
                made.addresses[column * made.run_count + run] = _bytes_address(array)

    def __dealloc__(self):
        free(<void *>self._columns.addresses)
        free(self._columns.run_rows)
        free(self._columns.item_bytes)

    cdef int _pick(self, places, rows, sj_picks *picks) except -1:
        """Check `places` and `rows`, and put their addresses into `picks`."""
        picks.places = NULL
        picks.place = 0
        cdef sj_view view
        _int32_view(rows, "rows", False, &view)
        picks.count = view.count
        picks.rows = <const int32_t *>view.items
        if isinstance(places, int):
            picks.place = places
            if not 0 <= picks.place < self._columns.run_count:
                raise _error("rows or places point outside the runs", "places")
        elif places is not None:
            _int32_view(places, "places", False, &view)
            if view.count != picks.count:
                raise _error("places and rows differ in length", "places")
            picks.places = <const int32_t *>view.items
        return 0

    def gather(self, places, rows, outs):
        """Copy row ``rows[i]`` of run ``places[i]`` (an int: of that run, None: of run 0) to item i of each out."""
        cdef Copying task = self._copying(places, rows, outs)
        task._do_rows(task._picks.count)

    def gathering(self, places, rows, outs):
        """`gather` as a task for a crew."""
        return self._copying(places, rows, outs)

    cdef Copying _copying(self, places, rows, outs):
        cdef int64_t column
        cdef Copying task = Copying.__new__(Copying)
        self._pick(places, rows, &task._picks)
        if len(outs) != self._columns.column_count:
            raise _error("there must be an out for each column", "outs")
        task._outs = <unsigned char **>calloc(self._columns.column_count + 1, sizeof(void *))
        if task._outs == NULL:
            raise MemoryError
        task._from, task._kept = &self._columns, (self, places, rows, outs)
        for column in range(self._columns.column_count if task._picks.count else 0):
            out = outs[column]
            if out is None:
                continue
            if (len(out) != task._picks.count or not isinstance(out, np.ndarray)
                    or out.dtype.itemsize != self._columns.item_bytes[column]):
                raise _error("out and rows differ in length", "outs")
            _check_array(out, "outs", out.dtype, True)
            task._outs[column] = _bytes_out(out)
        return task


cdef class Copying(Task):
    """The task that copies columns of some rows."""

    cdef const sj_run_columns *_from
    cdef sj_picks _picks
    cdef unsigned char **_outs
    cdef int _status

    def __dealloc__(self):
        free(self._outs)

    cdef void _work(self) noexcept nogil:
        self._status = sj_gather_columns(self._from, &self._picks, self._outs)

    cdef object _done(self):
        if self._status < 0:
            raise _error("rows or places point outside the runs", "rows")
        return None
