# Sums, counts and extremes of groups of numbers; semantics: streamjoin_ds.engine.kernels.twins.sums.

cdef extern from "sums/sums.h" nogil:
    enum: SJ_SUM_LIMBS
    enum: SJ_SUM_ONES

    ctypedef struct sj_sums:
        int64_t count
        int64_t *limbs[SJ_SUM_LIMBS]
        uint8_t *beyond
        int64_t added

    int sj_positions_fit(const int32_t *positions, int64_t n, int64_t count)
    int sj_sums_floats(sj_sums *sums, const int32_t *positions, const double *values, int64_t n)
    int sj_sums_integers(sj_sums *sums, const int32_t *positions, const int64_t *values, int64_t n)
    int sj_sums_wide(sj_sums *sums, const int32_t *positions, const int64_t *words, int64_t n)
    int sj_sums_limbs(const sj_sums *sums, int *lowest)
    void sj_sums_digits(const sj_sums *sums, int lowest, int rows, int64_t *digits)
    void sj_sums_beyond(const sj_sums *sums, double *out)
    void sj_sums_free(sj_sums *sums)
    void sj_tally(const int32_t *positions, int64_t n, int64_t *counts)
    void sj_extremes_float(const int32_t *positions, const double *values, int64_t n, int largest, int64_t *best)
    void sj_extremes_int(const int32_t *positions, const int64_t *values, int64_t n, int largest, int64_t *best)


cdef const int32_t *_group_positions(positions, int64_t count) except? NULL:
    cdef sj_view view
    cdef bint fit
    _int32_view(positions, "positions", False, &view)
    with nogil:
        fit = sj_positions_fit(<const int32_t *>view.items, view.count, count)
    if not fit:
        raise _error("positions point outside the groups", "positions")
    return <const int32_t *>view.items


cdef class ExactSums:
    """The exact sums of groups of numbers; see streamjoin_ds.engine.kernels.twins.sums.ExactSums."""

    cdef sj_sums _sums
    cdef bint _is_made

    def __init__(self, count):
        count = _integer(count, "count")
        if self._is_made:
            raise _error("this object has groups already", "count", "one object for some groups")
        if not 0 <= count <= _MAX_ROWS:
            raise _error("count is out of range", "count", "0 to 2^31 - 1")
        self._sums.count, self._is_made = count, True

    def __dealloc__(self):
        sj_sums_free(&self._sums)

    def add_floats(self, positions, values):
        """Add float64 numbers to the groups at these positions."""
        cdef const int32_t *groups
        cdef const double *added
        cdef int64_t n
        cdef int status
        _check_array(values, "values", _FLOAT)
        groups, added, n = _group_positions(positions, self._sums.count), _float_address(values), len(values)
        _same_length(positions, n, "values")
        with nogil:
            status = sj_sums_floats(&self._sums, groups, added, n)
        if status < 0:
            raise MemoryError

    def add_integers(self, positions, values):
        """Add int64 numbers to the groups at these positions."""
        cdef const int32_t *groups
        cdef const int64_t *added
        cdef int64_t n
        cdef int status
        _check_array(values, "values", _INT)
        groups, added, n = _group_positions(positions, self._sums.count), _int_address(values), len(values)
        _same_length(positions, n, "values")
        with nogil:
            status = sj_sums_integers(&self._sums, groups, added, n)
        if status < 0:
            raise MemoryError

    def add_wide(self, positions, words):
        """Add integers of 128 bits, two words each with the lower one first, to the groups at these positions."""
        cdef const int32_t *groups
        cdef const int64_t *added
        cdef int64_t n
        cdef int status
        _check_array(words, "words", _INT)
        if len(words) % 2:
            raise _error("there must be two words for each number", "words")
        groups, added, n = _group_positions(positions, self._sums.count), _int_address(words), len(words) // 2
        _same_length(positions, n, "words")
        with nogil:
            status = sj_sums_wide(&self._sums, groups, added, n)
        if status < 0:
            raise MemoryError

    def digits(self):
        """Return the number of the lowest limb, and all limbs as digits, shape (limbs, groups)."""
        cdef int lowest, rows
        cdef int64_t *out
        rows = sj_sums_limbs(&self._sums, &lowest)
        if not rows:
            return 0, np.zeros((4, self._sums.count), dtype=_INT)
        rows += 3
        digits = np.empty(rows * self._sums.count, dtype=_INT)
        out = _int64_out(digits)
        with nogil:
            sj_sums_digits(&self._sums, lowest, rows, out)
        return lowest - SJ_SUM_ONES, digits.reshape(rows, self._sums.count)

    def beyond(self):
        """Return the sum of each group's numbers that are not finite, 0.0 where there is none."""
        cdef double *out
        cdef double[::1] view
        found = np.empty(self._sums.count, dtype=_FLOAT)
        if self._sums.count:
            view = found
            out = &view[0]
            with nogil:
                sj_sums_beyond(&self._sums, out)
        return found


cdef int _same_length(positions, int64_t n, str name) except -1:
    if len(positions) != n:
        raise _error(f"positions and {name} differ in length", name)
    return 0


def tally(positions, counts):
    """Add to the count of each group how many positions are its own."""
    cdef const int32_t *groups
    cdef int64_t *out
    cdef int64_t n
    _check_array(counts, "counts", _INT, True)
    groups, n, out = _group_positions(positions, len(counts)), len(positions), _int64_out(counts)
    with nogil:
        sj_tally(groups, n, out)


def extremes(positions, values, best, *, largest):
    """Lower, or raise, the number of each group to that of its smallest or largest value."""
    cdef const int32_t *groups
    cdef const double *floats = NULL
    cdef const int64_t *integers = NULL
    cdef int64_t *out
    cdef int64_t n
    cdef bint is_largest = largest, is_float = _is_float(values, "values")
    _check_array(best, "best", _INT, True)
    groups, n, out = _group_positions(positions, len(best)), len(positions), _int64_out(best)
    _same_length(values, n, "values")
    if is_float:
        floats = _float_address(values)
    else:
        integers = _int_address(values)
    with nogil:
        if is_float:
            sj_extremes_float(groups, floats, n, is_largest, out)
        else:
            sj_extremes_int(groups, integers, n, is_largest, out)
