# Rows copied out of several runs; semantics: streamjoin_ds.engine.kernels.twins.runs.

cdef class RunColumns:
    """The same columns of several runs, to be gathered from; see streamjoin_ds.engine.kernels.twins.runs.RunColumns."""

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

    cdef int _select(self, run_numbers, rows, sj_selection *selection) except -1:
        """Check `run_numbers` and `rows`, and put their addresses into `selection`."""
        selection.run_numbers = NULL
        selection.run_number = 0
        cdef sj_view view
        _int32_view(rows, "rows", False, &view)
        selection.count = view.count
        selection.rows = <const int32_t *>view.items
        if isinstance(run_numbers, int):
            selection.run_number = run_numbers
            if not 0 <= selection.run_number < self._columns.run_count:
                raise _error("rows or run_numbers point outside the runs", "run_numbers")
        elif run_numbers is not None:
            _int32_view(run_numbers, "run_numbers", False, &view)
            if view.count != selection.count:
                raise _error("run_numbers and rows differ in length", "run_numbers")
            selection.run_numbers = <const int32_t *>view.items
        return 0

    def gather(self, run_numbers, rows, outs):
        """Copy row ``rows[i]`` of run ``run_numbers[i]`` to item i of each out; an int: of that run, None: of run 0."""
        cdef Copying task = self._copying(run_numbers, rows, outs)
        task._do_rows(task._selection.count)

    def gathering(self, run_numbers, rows, outs):
        """`gather` as a task for a pool."""
        return self._copying(run_numbers, rows, outs)

    cdef Copying _copying(self, run_numbers, rows, outs):
        cdef int64_t column
        cdef Copying task = Copying.__new__(Copying)
        self._select(run_numbers, rows, &task._selection)
        if len(outs) != self._columns.column_count:
            raise _error("there must be an out for each column", "outs")
        task._outs = <unsigned char **>calloc(self._columns.column_count + 1, sizeof(void *))
        if task._outs == NULL:
            raise MemoryError
        task._from, task._kept = &self._columns, (self, run_numbers, rows, outs)
        for column in range(self._columns.column_count if task._selection.count else 0):
            out = outs[column]
            if out is None:
                continue
            if (len(out) != task._selection.count or not isinstance(out, np.ndarray)
                    or out.dtype.itemsize != self._columns.item_bytes[column]):
                raise _error("out and rows differ in length", "outs")
            _check_array(out, "outs", out.dtype, True)
            task._outs[column] = _bytes_out(out)
        return task


cdef class Copying(Task):
    """The task that copies columns of some rows."""

    cdef const sj_run_columns *_from
    cdef sj_selection _selection
    cdef unsigned char **_outs
    cdef int _status

    def __dealloc__(self):
        free(self._outs)

    cdef void _work(self) noexcept nogil:
        self._status = sj_gather_columns(self._from, &self._selection, self._outs)

    cdef object _done(self):
        if self._status < 0:
            raise _error("rows or run_numbers point outside the runs", "rows")
        return None
