# Matches that a probing writes as rows; semantics: streamjoin_ds.engine.kernels.twins.arrow_rows.

cdef extern from "gather/match_rows.h" nogil:
    enum: SJ_MATCH_SLACK

    ctypedef struct sj_match_rows:
        unsigned char **window_to
        const sj_run_columns *own
        const sj_selection *probes
        unsigned char **own_to
        int64_t *greatest
        int64_t capacity
        int64_t written

    int sj_runs_match(sj_runs *runs, const sj_run_columns *window, sj_match_rows *rows)


MATCH_SLACK = SJ_MATCH_SLACK


cdef class Matching(Task):
    """The task that has a probing write rows of two parts; its result is their number."""

    cdef ArrowRows _to
    cdef RunsProbe _probing
    cdef RunColumns _window
    cdef RunColumns _own
    cdef sj_selection _probes
    cdef sj_match_rows _matches
    cdef unsigned char **_outs  # addresses of all columns; NULL: only the greatest is made of it
    cdef int _status

    def __dealloc__(self):
        free(self._outs)

    cdef int _begin(self, ArrowRows to, RunsProbe probing, int part, RunColumns window, own_part) except -1:
        cdef int64_t column
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
        probing._check_columns(window)
        self._own._select(run_numbers, rows, &self._probes)
        if self._probes.count != probing._runs.slices_end:
            raise _error("the arrays and the probes differ in number", "rows")
        probing._check_idle()
        self._outs = <unsigned char **>calloc(form._column_count, sizeof(void *))
        if self._outs == NULL:
            raise MemoryError
        for column in range(form._column_count):
            self._outs[column] = sj_rows_column(to._rows, column)
        for column in (form._firsts[0], form._firsts[1]):
            if not to._exports(column):
                self._outs[column] = NULL  # nobody asks for times beside the greatest
        self._matches.window_to = self._outs + form._firsts[part]
        self._matches.own, self._matches.probes = &self._own._columns, &self._probes
        self._matches.own_to = self._outs + form._firsts[1 - part]
        self._matches.greatest = <int64_t *>self._outs[form._column_count - 1]
        self._matches.capacity = to._count - SJ_MATCH_SLACK
        self._to, self._probing, self._window = to, probing, window
        self._kept = own_part
        probing._busy = probing._is_begun = True
        return 0

    cdef void _work(self) noexcept nogil:
        self._status = sj_runs_match(&self._probing._runs, &self._window._columns, &self._matches)
        if self._status == 0:
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
