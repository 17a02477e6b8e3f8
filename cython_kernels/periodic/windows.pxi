# Periodic windows that the tuples of a result have in common; semantics: streamjoin_ds.engine.kernels.twins.periodic.

cdef extern from "periodic/windows.h" nogil:
    ctypedef struct sj_window_stream:
        const sj_run_columns *columns
        sj_selection selection
        int64_t whole
        int64_t part
        int64_t lag

    ctypedef struct sj_windows:
        int64_t every
        int64_t stream_count
        sj_window_stream *streams
        int64_t count
        int64_t next
        int64_t first
        int64_t last

    int64_t sj_windows_fill(sj_windows *windows, int32_t *out_results, int64_t *out_ids, int64_t capacity)

# Microseconds, of T, of W, and of T times a lag: up to this no window's id leaves int64, unless T is 1.
cdef int64_t _MAX_PERIOD = 1 << 60


cdef class CommonWindows:
    """The windows that results' tuples share; see streamjoin_ds.engine.kernels.twins.periodic.CommonWindows."""

    cdef sj_windows _windows
    cdef list _kept
    cdef bint _busy

    def __init__(self, every, windows, parts):
        cdef int64_t number
        cdef sj_window_stream *stream
        cdef RunColumns columns
        cdef sj_windows *made = &self._windows
        windows, parts = list(windows), list(parts)
        if made.streams != NULL:
            raise _error("this object has results already", "parts", "one object for some results")
        if not windows or len(windows) != len(parts):
            raise _error("there must be a window for each part", "windows")
        every = _integer(every, "every")
        if not 0 < every <= _MAX_PERIOD:
            raise _error("every is out of range", "every", "1 to 2^60")
        made.every, made.stream_count = every, len(windows)
        made.streams = <sj_window_stream *>calloc(made.stream_count, sizeof(sj_window_stream))
        if made.streams == NULL:
            raise MemoryError
        self._kept = parts
        made.first, made.last = 1, 0
        for number in range(made.stream_count):
            stream = &made.streams[number]
            window, lag = _integer(windows[number][0], "windows"), _integer(windows[number][1], "windows")
            if not 0 < window <= _MAX_PERIOD or abs(lag) * every > _MAX_PERIOD:
                raise _error("a window or its lag is out of range", "windows")
            stream.whole, stream.part, stream.lag = (window - 1) // every, (window - 1) % every, lag
            columns, run_numbers, rows = parts[number]
            if columns is None or columns._columns.column_count != 1 or columns._columns.item_bytes[0] != 8:
                raise _error("a part must have one column of 8 bytes", "parts")
            columns._select(run_numbers, rows, &stream.selection)
            stream.columns = &columns._columns
            if number and stream.selection.count != made.count:
                raise _error("the parts differ in their number of rows", "parts")
            made.count = stream.selection.count

    def __dealloc__(self):
        free(self._windows.streams)

    @property
    def is_done(self):
        """Whether nothing is left to be written."""
        return self._windows.next == self._windows.count and self._windows.first > self._windows.last

    def filling(self, out_results, out_ids=None):
        """Return a task that writes results and ids of their windows, without `out_ids` each result once."""
        cdef WindowsFilling task = WindowsFilling.__new__(WindowsFilling)
        cdef sj_view view
        _int32_view(out_results, "out_results", True, &view)
        task._results, task._capacity, task._ids = <int32_t *>view.items, view.count, NULL
        if out_ids is not None:
            _check_array(out_ids, "out_ids", _INT, True)
            if len(out_ids) != task._capacity:
                raise _error("the outputs differ in length", "out_ids")
            task._ids = <int64_t *>_bytes_out(out_ids)
        if self._busy:
            raise _error("another thread is filling from this object", "filling", "one object per thread")
        self._busy = True
        task._of, task._kept = self, (out_results, out_ids)
        return task


cdef class WindowsFilling(Task):
    """The task that fills one buffer with results and window ids; its result is how many."""

    cdef CommonWindows _of
    cdef int32_t *_results
    cdef int64_t *_ids
    cdef int64_t _capacity
    cdef int64_t _written

    cdef void _work(self) noexcept nogil:
        self._written = sj_windows_fill(&self._of._windows, self._results, self._ids, self._capacity)

    cdef object _done(self):
        self._of._busy = False
        if self._written < 0:
            raise _error("rows or run_numbers point outside the runs", "rows")
        return self._written
