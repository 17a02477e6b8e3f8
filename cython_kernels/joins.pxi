# Scans and grid probes; semantics: streamjoin_ds.engine.kernels.twins.scan and grid_probe.

cdef const sj_implementation *_implementation(name) except NULL:
    if name is None:
        name = default_implementation()
    index = _numbers.get(name)
    if index is None:
        raise _error("this implementation is not available here", "implementation", ", ".join(_numbers))
    return sj_implementation_at(index)


cdef list _in_order(int count, leading):
    """Return the numbers of all conditions, the leading ones first; -1 stands for none."""
    first = [number for number in leading if number >= 0]
    return first + [number for number in range(count) if number not in first]


cdef int _slot_of(list columns, list order, int wanted) except -1:
    """Return the place of a condition among those of its type, where the conditions are added in this order."""
    before = order[:order.index(wanted)]
    return sum(columns[number].dtype == columns[wanted].dtype for number in before)


cdef int _check_interval(past, second, columns) except -1:
    """Check the number of the condition that ends the rows of the sorted one; -1: there is none."""
    if past < 0:
        return 0
    if second < 0 or past == second or columns[past].dtype != _FLOAT or columns[second].dtype != _FLOAT:
        raise _error("past must be another condition on floats than second", "past")
    return 0


cdef class _Join:
    """The base of both joins: the conditions, the chosen implementation, the check of the output."""

    cdef const sj_implementation *_chosen
    cdef list _kept
    cdef bint _busy
    cdef bint _is_begun

    cdef int _choose(self, implementation) except -1:
        self._chosen = _implementation(implementation)
        return 0

    cdef int _fill_band(self, sj_band *band, list left, list right, list lo, list hi, leading, left_count,
                        right_count) except -1:
        cdef int condition
        if not len(left) == len(right) == len(lo) == len(hi):
            raise _error("left, right, lo and hi differ in length", "left")
        if len(left) > SJ_MAX_CONDITIONS:
            raise _error("more than 16 conditions", "left")
        band.probe_count = _common_length(left, "left", left_count)
        band.run_count = _common_length(right, "right", right_count)
        self._kept = [left, right]
        for condition in _in_order(len(left), leading):
            self._add_condition(band, left[condition], right[condition], lo[condition], hi[condition])
        return 0

    cdef int _add_condition(self, sj_band *band, left, right, lo, hi) except -1:
        cdef int index
        if left.dtype != right.dtype:
            raise _error("left and right differ in type", "right")
        if left.dtype == _FLOAT:
            index = band.float_count
            band.float_left[index] = _float_address(left)
            band.float_right[index] = _float_address(right)
            _set_float_ends(band, index, lo, hi)
            band.float_count = index + 1
        else:
            index = band.int_count
            band.int_left[index] = _int_address(left)
            band.int_right[index] = _int_address(right)
            band.int_lo[index] = _wide_bound(lo, "lo")
            band.int_hi[index] = _wide_bound(hi, "hi")
            band.int_count = index + 1
        return 0

    cdef int64_t _write(self, int32_t *probes, int32_t *rows, int64_t capacity) noexcept nogil:
        """Write the next pairs and return how many; each join has its own."""
        return 0

    cdef PairFilling _filling(self, out_probe, out_row):
        cdef PairFilling task = PairFilling.__new__(PairFilling)
        _check_array(out_probe, "out_probe", _INT32, True)
        _check_array(out_row, "out_row", _INT32, True)
        task._capacity = len(out_probe)
        if len(out_row) != task._capacity or task._capacity < SJ_MIN_CAPACITY:
            raise _error("out_probe and out_row must be of one length, 64 at least", "out_probe")
        if self._busy:
            raise _error("another thread is filling from this object", "fill", "one object per thread")
        task._probes, task._rows = _int32_out(out_probe), _int32_out(out_row)
        task._of, task._kept = self, (out_probe, out_row)
        self._busy = self._is_begun = True
        return task

    cdef void _count(self, int64_t *counts, sj_partner_sums *sums) noexcept nogil:
        """Add to each probe's count how many pairs it has; each join has its own."""

    cdef PairCounting _counting(self, out_counts, int64_t probes, sums, run_number, first, int64_t groups,
                                int64_t rows):
        cdef PairCounting task = PairCounting.__new__(PairCounting)
        cdef PartnerSums given
        task._counts = _counts_of(out_counts, probes, self._is_begun)
        if sums is not None:
            given = sums
            given._begin(run_number, 1, first, groups)
            given._check_rows(run_number, rows)
            task._sums = &given._sums
        task._of, task._kept = self, (out_counts, sums)
        self._busy = self._is_begun = True
        return task


cdef class PairFilling(Task):
    """The task that fills one buffer with pairs of a probe and a row; its result is their number."""

    cdef _Join _of
    cdef int32_t *_probes
    cdef int32_t *_rows
    cdef int64_t _capacity
    cdef int64_t _written

    cdef void _work(self) noexcept nogil:
        self._written = self._of._write(self._probes, self._rows, self._capacity)

    cdef object _done(self):
        self._of._busy = False
        return self._written


cdef class PairCounting(Task):
    """The task that counts the pairs of each probe."""

    cdef _Join _of
    cdef int64_t *_counts
    cdef sj_partner_sums *_sums

    cdef void _work(self) noexcept nogil:
        self._of._count(self._counts, self._sums)
        if self._sums != NULL:
            sj_fold_pieces(self._sums)

    cdef object _done(self):
        self._of._busy = False
        return None


cdef int64_t *_counts_of(out_counts, int64_t probes, bint is_begun) except? NULL:
    """Check the counts of a probing that must be untouched, and return their address."""
    _check_array(out_counts, "out_counts", _INT, True)
    if len(out_counts) < probes:
        raise _error("out_counts has fewer rows than there are probes", "out_counts")
    if is_begun:
        raise _error("pairs of this object were written or counted already", "counting", "one object a counting")
    return _int64_out(out_counts)


cdef int64_t _common_length(list columns, str name, count) except -1:
    for column in columns:
        _is_float(column, name)
        if count is not None and len(column) != count:
            raise _error(f"the columns of {name} differ in length", name)
        count = len(column)
    if count is None:
        raise _error("without conditions the counts are needed", name, "pass left_count and right_count")
    if not 0 <= count <= _MAX_ROWS:
        raise _error(f"{name} has more rows than int32 can number", name)
    return count


cdef class Scan(_Join):
    """Nested-loop join, SIMD; see streamjoin_ds.engine.kernels.twins.Scan."""

    cdef sj_scan _scan

    def __init__(self, left, right, lo, hi, implementation=None, *, unrolled=True, left_count=None,
                 right_count=None):
        if self._busy:
            raise _error("another thread is filling from this object", "fill", "one object per thread")
        memset(&self._scan, 0, sizeof(self._scan))
        self._choose(implementation)
        self._fill_band(&self._scan.band, list(left), list(right), list(lo), list(hi), (), left_count, right_count)
        self._scan.is_rolled = not unrolled

    @property
    def candidates(self):
        """Pairs tested so far."""
        return self._scan.candidates

    @property
    def implementation(self):
        """Name of the implementation in use."""
        return self._chosen.name.decode()

    def fill(self, out_probe, out_row):
        """Write the next pairs; 0 means there are no more."""
        return self._filling(out_probe, out_row).do()

    def filling(self, out_probe, out_row):
        """`fill` as a task for a pool."""
        return self._filling(out_probe, out_row)

    def counting(self, out_counts, sums=None, run_number=0, first=0):
        """Return a task that adds to each probe's count how many pairs it has; no pairs are written then."""
        cdef int64_t probes = self._scan.band.probe_count
        return self._counting(out_counts, probes, sums, run_number, first, probes, self._scan.band.run_count)

    cdef int64_t _write(self, int32_t *probes, int32_t *rows, int64_t capacity) noexcept nogil:
        return self._chosen.scan_fill(&self._scan, probes, rows, capacity)

    cdef void _count(self, int64_t *counts, sj_partner_sums *sums) noexcept nogil:
        self._chosen.scan_count(&self._scan, counts, sums)


def scan_roof(is_float=False, implementation=None):
    """Measure the roof of `Scan` on this core: pairs a second when it only compares one condition, with rows in L1."""
    cdef const sj_implementation *chosen = _implementation(implementation)
    cdef int floats = bool(is_float)
    cdef int64_t rounds = 1 << 16
    cdef unsigned found
    began = time.perf_counter()
    with nogil:
        found = chosen.scan_roof(floats, rounds)
    elapsed = time.perf_counter() - began
    assert not found
    return rounds * SJ_SCAN_TILE_ROWS / elapsed


cdef class GridProbe(_Join):
    """Sorted probes against a run in grid order, SIMD; see streamjoin_ds.engine.kernels.twins.GridProbe."""

    cdef sj_grid _grid
    cdef object _order

    def __init__(self, left, right, lo, hi, *, first, second, width, bucket_ids, bucket_starts, probe_order,
                 fences=None, steps=None, implementation=None, left_count=None, right_count=None, past=-1,
                 interval_lo=0.0):
        cdef bint float_second = False
        cdef const double *second_floats = NULL
        cdef const int64_t *second_ints = NULL
        cdef const int64_t *starts
        cdef int sorted_probes
        if self._busy:
            raise _error("another thread is filling from this object", "fill", "one object per thread")
        memset(&self._grid, 0, sizeof(self._grid))
        self._choose(implementation)
        left, right, lo, hi = list(left), list(right), list(lo), list(hi)
        first, second = _integer(first, "first"), _integer(second, "second")
        past = _integer(past, "past")
        for name, choice in (("first", first), ("second", second), ("past", past)):
            if not -1 <= choice < len(left):
                raise _error(f"{name} is not the number of a condition", name)
        _check_interval(past, second, left)
        _check_array(probe_order, "probe_order", _INT32)
        for name, array in (("bucket_ids", bucket_ids), ("bucket_starts", bucket_starts)):
            if array is not None:
                _check_array(array, name, _INT)
        if left_count is None and not left:
            left_count = len(probe_order)
        if right_count is None and not right and bucket_starts is not None and len(bucket_starts):
            right_count = int(bucket_starts[len(bucket_starts) - 1])
        self._fill_band(&self._grid.band, left, right, lo, hi, (second, past), left_count, right_count)
        if len(probe_order) != self._grid.band.probe_count:
            raise _error("probe_order and left differ in length", "probe_order")
        if first >= 0:
            if bucket_ids is None or bucket_starts is None:
                raise _error("a bucket attribute needs bucket_ids and bucket_starts", "bucket_ids")
            bucket_from, bucket_to = _bucket_range(left[first], lo[first], hi[first], width, True)
        else:
            bucket_ids = np.zeros(1, dtype=np.int64)
            bucket_starts = np.array([0, self._grid.band.run_count], dtype=np.int64)
            bucket_from = bucket_to = np.zeros(self._grid.band.probe_count, dtype=np.int64)
        if len(bucket_starts) != len(bucket_ids) + 1 or bucket_starts[len(bucket_ids)] != self._grid.band.run_count:
            raise _error("bucket_starts does not fit bucket_ids and the run", "bucket_starts")
        self._kept += [probe_order, bucket_ids, bucket_starts, bucket_from, bucket_to]
        self._grid.probe_order = _order_address(probe_order)
        self._order = probe_order
        if first >= 0:
            self._grid.first_slot = _slot_of(left, _in_order(len(left), (second, past)), first)
            if left[first].dtype == _FLOAT:
                self._grid.float_width = _float_width(width)
            else:
                self._grid.int_width = _int_width(width)
        self._grid.bucket_ids = _int_address(bucket_ids)
        self._grid.bucket_starts = _int_address(bucket_starts)
        self._grid.bucket_from = _int_address(bucket_from)
        self._grid.bucket_to = _int_address(bucket_to)
        self._grid.bucket_count = len(bucket_ids)
        self._grid.sorted = SJ_SORTED_NONE
        if second >= 0:
            float_second = left[second].dtype == _FLOAT
            self._grid.sorted = SJ_SORTED_FLOAT if float_second else SJ_SORTED_INT
            if past >= 0:
                self._grid.sorted = SJ_SORTED_INTERVAL
                self._grid.band.interval_lo = _float_bound(interval_lo, "interval_lo")
            if float_second:
                second_floats = self._grid.band.float_left[0]
            else:
                second_ints = self._grid.band.int_left[0]
            self._set_fences(fences, right[second])
            if steps is not None and first < 0:
                _set_steps(&self._grid.steps, steps, right[second])
                self._kept.append(steps)
        starts = self._grid.bucket_from
        with nogil:
            sorted_probes = sj_probes_sorted(starts, second_floats, second_ints, self._grid.band.probe_count)
        if not sorted_probes:
            raise _error("the probes are not sorted by start bucket and second attribute", "left",
                         "permute left by grid_order(probe_buckets(...), left[second])")

    cdef int _set_fences(self, fences, column) except -1:
        if fences is None:
            return 0
        _check_fences(fences, column)
        self._kept.append(fences)
        if column.dtype == _FLOAT:
            self._grid.float_fences = _float_address(fences)
        else:
            self._grid.int_fences = _int_address(fences)
        return 0

    @property
    def candidates(self):
        """Pairs tested so far: rows of the visited buckets within the probe's band of the sort attribute."""
        return self._grid.candidates

    @property
    def implementation(self):
        """Name of the implementation in use."""
        return self._chosen.name.decode()

    def fill(self, out_probe, out_row):
        """Write the next pairs; 0 means there are no more."""
        return self._filling(out_probe, out_row).do()

    def filling(self, out_probe, out_row):
        """`fill` as a task for a pool."""
        return self._filling(out_probe, out_row)

    def counting(self, out_counts, sums=None, run_number=0, first=0):
        """Return a task that adds to the count of each probe, by its id, how many pairs it has.

        No pairs are written then.
        """
        order = self._order
        groups = order.max() + 1 if len(order) else 0
        if len(order) and not 0 <= order.min() <= order.max() < len(out_counts):
            raise _error("probe_order points outside the counts", "out_counts")
        return self._counting(out_counts, 0, sums, run_number, first, groups, self._grid.band.run_count)

    cdef int64_t _write(self, int32_t *probes, int32_t *rows, int64_t capacity) noexcept nogil:
        return self._chosen.grid_fill(&self._grid, probes, rows, capacity)

    cdef void _count(self, int64_t *counts, sj_partner_sums *sums) noexcept nogil:
        self._chosen.grid_count(&self._grid, counts, sums)
