# Matches that a probing writes as rows; semantics: streamjoin_ds.engine.kernels.twins.arrow_rows.

cdef extern from "gather/match_rows.h" nogil:
    enum: SJ_MATCH_SLACK

    ctypedef struct sj_match_rows:
        int64_t column_count
        const int *item_bytes
        unsigned char **to
        int64_t capacity
        int64_t written
        int32_t *probes
        int32_t *lengths
        int64_t stretches

    int sj_runs_match(sj_runs *runs, const sj_run_columns *source, sj_match_rows *rows)
    int sj_spread_probes(const sj_run_columns *source, const sj_selection *probes, const sj_match_rows *stretches,
                         unsigned char **outs)
    void sj_spread_greatest(const sj_run_columns *source, const sj_selection *probes, const sj_match_rows *stretches,
                            const int64_t *window, int64_t *to)


MATCH_SLACK = SJ_MATCH_SLACK


cdef class Matching(Task):
    """The task that has a probing write rows of two parts; its result is their number."""

    cdef ArrowRows _to
    cdef RunsProbe _probing
    cdef RunColumns _window
    cdef RunColumns _own
    cdef sj_selection _probes
    cdef sj_match_rows _matches
    cdef unsigned char **_own_outs
    cdef unsigned char **_outs  # addresses of all columns; NULL: only the greatest is made of it
    cdef int64_t _greatest
    cdef int _status

    def __dealloc__(self):
        free(self._outs)
        free(self._matches.probes)

    cdef int _begin(self, ArrowRows to, RunsProbe probing, int part, RunColumns window, own_part) except -1:
        cdef int64_t column, run
        cdef RowsForm form = to._form
        self._own, run_numbers, rows = own_part
        if window is None or self._own is None:
            raise _error("a part has no columns", "columns")
        if form._part_count != 2 or not form._with_greatest or not 0 <= part <= 1:
            raise _error("rows of matches have two parts and the greatest", "part")
        if to._count < 2 * SJ_MATCH_SLACK:
            raise _error("there is no room for matches", "count", f"{2 * SJ_MATCH_SLACK} rows or more")
        to._check_columns(part, window)
        to._check_columns(1 - part, self._own)
        if window._columns.run_count != probing._runs.run_count:
            raise _error("the columns are of other runs than the probing's", "columns")
        for run in range(window._columns.run_count):
            if window._columns.run_rows[run] < _rows_of_index(probing._runs.indexes[run]):
                raise _error("the columns are of other runs than the probing's", "columns")
        self._own._select(run_numbers, rows, &self._probes)
        if self._probes.count != probing._runs.slices_end:
            raise _error("the arrays and the probes differ in number", "rows")
        if probing._busy:
            raise _error("another thread is filling from this object", "fill", "one object per thread")
        self._outs = <unsigned char **>calloc(form._column_count, sizeof(void *))
        self._matches.capacity = to._count - SJ_MATCH_SLACK
        self._matches.probes = <int32_t *>malloc(2 * self._matches.capacity * sizeof(int32_t))
        if self._outs == NULL or self._matches.probes == NULL:
            raise MemoryError
        self._matches.lengths = self._matches.probes + self._matches.capacity
        for column in range(form._column_count):
            self._outs[column] = sj_rows_column(to._rows, column)
        column = form._firsts[1 - part]
        if not to._exports(column):
            self._outs[column] = NULL  # nobody asks for the probes' times beside the greatest
        self._matches.column_count = window._columns.column_count
        self._matches.item_bytes = window._columns.item_bytes
        self._matches.to = self._outs + form._firsts[part]
        self._own_outs = self._outs + form._firsts[1 - part]
        self._greatest = form._column_count - 1
        self._to, self._probing, self._window = to, probing, window
        self._kept = own_part
        probing._busy = probing._is_begun = True
        return 0

    cdef void _work(self) noexcept nogil:
        self._status = sj_runs_match(&self._probing._runs, &self._window._columns, &self._matches)
        if self._status == 0:
            self._status = 2 * sj_spread_probes(&self._own._columns, &self._probes, &self._matches,
                                                self._own_outs)
        if self._status == 0:
            sj_spread_greatest(&self._own._columns, &self._probes, &self._matches,
                               <const int64_t *>self._matches.to[0], <int64_t *>self._outs[self._greatest])
            self._status = self._to._cut(self._matches.written)

    cdef object _done(self):
        cdef int64_t column
        self._probing._busy = False
        if self._status == -1:
            raise MemoryError
        if self._status < 0:
            raise _error("rows or run_numbers point outside the runs", "rows")
        for column in range(self._to._form._column_count):
            self._to._filled[column] = self._to._count
        return self._matches.written


cdef int64_t _rows_of_index(const sj_run_index *index) noexcept:
    """Return how many rows of a run a probing may name."""
    if index.bucket_grid != NULL:
        return index.bucket_grid.chunk_room * SJ_CHUNK_ROWS
    return index.band.run_count
