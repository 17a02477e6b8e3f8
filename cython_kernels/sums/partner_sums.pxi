# Sums and extremes over partners while they are counted; semantics: streamjoin_ds.engine.kernels.twins.partner_sums.

cdef extern from "sums/partner_sums.h" nogil:
    enum: SJ_FOLD_PARTS
    enum: SJ_FOLD_SUM
    enum: SJ_FOLD_MIN
    enum: SJ_FOLD_MAX
    enum: SJ_FLOAT64
    enum: SJ_FLOAT32
    enum: SJ_INT64
    enum: SJ_INT32

    ctypedef struct sj_fold:
        int function
        int item
        int64_t column
        double *floats[SJ_FOLD_PARTS]
        int64_t *ints[2]

    ctypedef struct sj_partner_sums:
        int64_t count
        int fold_count
        sj_fold *folds
        uint8_t *open
        const sj_run_columns *columns
        void (*fold)(sj_partner_sums *sums) noexcept
        int64_t run
        int64_t first_group
        int64_t group

    void sj_fold_pieces(sj_partner_sums *sums)


cdef class PartnerSums:
    """Sums and extremes of columns over partners; see streamjoin_ds.engine.kernels.twins.partner_sums.PartnerSums."""

    cdef sj_partner_sums _sums
    cdef list _parts
    cdef RunColumns _columns
    cdef object _open

    def __init__(self, count, columns, wanted, implementation=None):
        cdef int place
        cdef const sj_implementation *chosen = _implementation(implementation)
        if self._sums.folds != NULL:
            raise _error("this object has groups already", "count", "one object for some groups")
        count, wanted = _integer(count, "count"), list(wanted)
        if not 0 <= count <= _MAX_ROWS:
            raise _error("count is out of range", "count", "0 to 2^31 - 1")
        if not isinstance(columns, RunColumns):
            raise _error("columns must be RunColumns", "columns")
        self._columns = columns
        self._sums.folds = <sj_fold *>calloc(len(wanted) + 1, sizeof(sj_fold))
        if self._sums.folds == NULL:
            raise MemoryError
        self._open, self._parts = np.zeros(count, np.uint8), []
        self._sums.count, self._sums.fold_count = count, len(wanted)
        self._sums.open, self._sums.columns = <uint8_t *>_bytes_out(self._open), &self._columns._columns
        self._sums.fold, self._sums.group = chosen.fold, -1
        for place, (column, function, kind) in enumerate(wanted):
            self._set_fold(&self._sums.folds[place], _integer(column, "wanted"), function, kind)

    cdef int _set_fold(self, sj_fold *fold, int64_t column, function, kind) except -1:
        cdef int part
        if function not in _FOLDS or kind not in _ITEMS or not 0 <= column < self._columns._columns.column_count:
            raise _error("wanted has a column that is not there, or what cannot be done with it", "wanted")
        fold.function, fold.item, fold.column = _FOLDS[function], _ITEMS[kind], column
        if self._columns._columns.item_bytes[column] != np.dtype(kind).itemsize:
            raise _error("a column's items are of another width", "wanted")
        if function == "sum" and kind[0] == "f":
            parts = [np.zeros(self._sums.count) for _ in range(SJ_FOLD_PARTS)]
            for part in range(SJ_FOLD_PARTS):
                fold.floats[part] = <double *>_bytes_out(parts[part])
        else:
            none = 0 if function == "sum" else INT64_MAX if function == "min" else INT64_MIN
            parts = [np.full(self._sums.count, none, np.int64) for _ in range(2 if function == "sum" else 1)]
            for part in range(len(parts)):
                fold.ints[part] = _int64_out(parts[part])
        self._parts.append(tuple(parts))
        return 0

    def __dealloc__(self):
        free(self._sums.folds)

    cdef int _begin(self, int64_t run, int64_t runs, int64_t first_group, int64_t groups) except -1:
        """Begin with `runs` runs and `groups` groups."""
        if not 0 <= run <= self._columns._columns.run_count - runs:
            raise _error("the sums have no columns of these runs", "sums")
        if not 0 <= first_group <= self._sums.count - groups:
            raise _error("the sums have too few groups", "sums")
        self._sums.run, self._sums.first_group, self._sums.group = run, first_group, -1
        return 0

    cdef int _check_rows(self, int64_t run, int64_t rows) except -1:
        if self._columns._columns.run_rows[run] < rows:
            raise _error("the sums' columns have too few rows", "sums")
        return 0

    def parts(self, number):
        """Return what is known of each group's values, part by part."""
        if not 0 <= number < len(self._parts):
            raise _error("there is no such number", "number")
        return self._parts[number]

    def left_open(self):
        """Return which groups are to be added up otherwise."""
        return self._open != 0


_FOLDS = {"sum": SJ_FOLD_SUM, "min": SJ_FOLD_MIN, "max": SJ_FOLD_MAX}
_ITEMS = {"f8": SJ_FLOAT64, "f4": SJ_FLOAT32, "i8": SJ_INT64, "i4": SJ_INT32}
