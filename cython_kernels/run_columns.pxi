# Rows copied out of several runs; semantics: streamjoin_ds.engine.reference.runs.

# Fewer are copied sooner than the GIL is let go of and taken again.
cdef enum:
    _FEW_ROWS = 256


cdef struct sj_picks:
    int64_t count
    const int32_t *rows
    const int32_t *places  # NULL: all of `place`
    int64_t place


cdef class RunColumns:
    """The same columns of several runs, to be gathered from; see streamjoin_ds.engine.reference.runs.RunColumns."""

    cdef const unsigned char **_addresses  # column by column, run by run
    cdef int64_t *_rows
    cdef int *_item_bytes
    cdef int64_t _run_count
    cdef int64_t _column_count
    cdef list _kept

    def __init__(self, runs):
        cdef int64_t run, column
        runs = [list(columns) for columns in runs]
        if self._addresses != NULL:
            raise _error("this object has columns already", "runs")
        if not runs or any(len(columns) != len(runs[0]) for columns in runs):
            raise _error("runs differ in their number of columns", "runs")
        self._kept = runs
        self._run_count, self._column_count = len(runs), len(runs[0])
        self._addresses = <const unsigned char **>calloc(self._run_count * self._column_count + 1, sizeof(void *))
        self._rows = <int64_t *>calloc(self._run_count, sizeof(int64_t))
        self._item_bytes = <int *>calloc(self._column_count + 1, sizeof(int))
        if self._addresses == NULL or self._rows == NULL or self._item_bytes == NULL:
            raise MemoryError
        for run in range(self._run_count):
            self._rows[run] = len(runs[run][0]) if self._column_count else 0
            for column in range(self._column_count):
                array = runs[run][column]
                if not isinstance(array, np.ndarray):
                    raise _error("a column is not an ndarray", "runs")
                _check_array(array, "runs", runs[0][column].dtype)
                if len(array) != self._rows[run]:
                    raise _error("columns of a run differ in length", "runs")
                if array.dtype.itemsize not in (1, 2, 4, 8, 16) or array.dtype.hasobject:
                    raise _error("column items must have 1, 2, 4, 8 or 16 bytes", "runs")
                self._item_bytes[column] = array.dtype.itemsize
                self._addresses[column * self._run_count + run] = _bytes_address(array)

    def __dealloc__(self):
        free(<void *>self._addresses)
        free(self._rows)
        free(self._item_bytes)

    cdef int _pick(self, places, rows, sj_picks *picks) except -1:
        """Check which rows are meant, and where they are told."""
        picks.places = NULL
        picks.place = 0
        cdef sj_view view
        _int32_view(rows, "rows", False, &view)
        picks.count = view.count
        picks.rows = <const int32_t *>view.items
        if isinstance(places, int):
            picks.place = places
            if not 0 <= picks.place < self._run_count:
                raise _error("rows or places point outside the runs", "places")
        elif places is not None:
            _int32_view(places, "places", False, &view)
            if view.count != picks.count:
                raise _error("places and rows differ in length", "places")
            picks.places = <const int32_t *>view.items
        return 0

    cdef int _copied(self, sj_picks *picks, unsigned char **outs) noexcept nogil:
        """Copy all columns, NULL: not that one; -1 and nothing where a row is outside the runs."""
        cdef int64_t column
        cdef const unsigned char **addresses
        cdef int status = sj_gather_check(self._rows + picks.place, self._run_count, picks.places, picks.rows,
                                          picks.count)
        if status < 0:
            return status
        if status == 0 and picks.places != NULL and picks.count:  # all are of one run
            picks.place, picks.places = picks.places[0], NULL
        for column in range(self._column_count):
            addresses = self._addresses + column * self._run_count
            if outs[column] == NULL:
                continue
            if picks.places != NULL:
                sj_gather_runs(addresses, self._rows, self._item_bytes[column], picks.places, picks.rows, picks.count,
                               outs[column])
            else:
                sj_gather_run(addresses[picks.place], self._rows[picks.place], self._item_bytes[column], picks.rows,
                              picks.count, outs[column])
        return 0

    cdef int _copy(self, sj_picks *picks, unsigned char **outs) except -1:
        """Copy all columns in one go, checked rows only: to get the GIL back may take longer than a column does."""
        cdef int status
        if picks.count < _FEW_ROWS:
            status = self._copied(picks, outs)
        else:
            with nogil:
                status = self._copied(picks, outs)
        if status < 0:
            raise _error("rows or places point outside the runs", "rows")
        return 0

    def gather(self, places, rows, outs):
        """Copy each column's ``columns[places[i]][rows[i]]`` to its out; a number: all of that run, None: of run 0."""
        cdef Copying task = self._copying(places, rows, outs)
        self._copy(&task._picks, task._outs)

    def gathering(self, places, rows, outs):
        """`gather` as a task for a crew."""
        return self._copying(places, rows, outs)

    cdef Copying _copying(self, places, rows, outs):
        cdef int64_t column
        cdef Copying task = Copying.__new__(Copying)
        self._pick(places, rows, &task._picks)
        if len(outs) != self._column_count:
            raise _error("there must be an out for each column", "outs")
        task._outs = <unsigned char **>calloc(self._column_count + 1, sizeof(void *))
        if task._outs == NULL:
            raise MemoryError
        task._columns, task._kept = self, (places, rows, outs)
        for column in range(self._column_count if task._picks.count else 0):
            out = outs[column]
            if out is None:
                continue
            if (len(out) != task._picks.count or not isinstance(out, np.ndarray)
                    or out.dtype.itemsize != self._item_bytes[column]):
                raise _error("out and rows differ in length", "outs")
            _check_array(out, "outs", out.dtype, True)
            task._outs[column] = _bytes_out(out)
        return task


cdef class Copying(Task):
    """Copies some rows' columns."""

    cdef RunColumns _columns
    cdef sj_picks _picks
    cdef unsigned char **_outs
    cdef int _status

    def __dealloc__(self):
        free(self._outs)

    cdef void _work(self) noexcept nogil:
        self._status = self._columns._copied(&self._picks, self._outs)

    cdef object _done(self):
        if self._status < 0:
            raise _error("rows or places point outside the runs", "rows")
        return None
