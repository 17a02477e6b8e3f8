# A few probes against all runs of a window; semantics: streamjoin_ds.engine.kernels.twins.runs.

cdef extern from "grid/runs_probe.h" nogil:
    enum: SJ_SCAN_PAIRS
    enum: SJ_SCAN_ROWS_ALONE

    ctypedef struct sj_run_index:
        const sj_bucket_grid *bucket_grid
        sj_bucket_columns bucket_columns
        sj_band band
        int conditions
        int is_float[SJ_MAX_CONDITIONS]
        int slot[SJ_MAX_CONDITIONS]
        int first
        int second
        int sorted
        double float_width
        int64_t int_width
        const double *float_fences
        const int64_t *int_fences
        sj_steps steps
        const int64_t *bucket_ids
        const int64_t *bucket_starts
        int64_t bucket_count
        int has_zone
        double float_smallest[SJ_MAX_CONDITIONS]
        double float_largest[SJ_MAX_CONDITIONS]
        int64_t int_smallest[SJ_MAX_CONDITIONS]
        int64_t int_largest[SJ_MAX_CONDITIONS]

    ctypedef struct sj_runs:
        const sj_run_index **indexes
        int64_t run_count
        int64_t last_rows
        int64_t probe_count
        int64_t slice_probes
        int64_t slices_end
        const double *float_left[SJ_MAX_CONDITIONS]
        const int64_t *int_left[SJ_MAX_CONDITIONS]
        sj_scan_fill scan_fill
        sj_grid_fill grid_fill
        sj_bucket_fill bucket_fill
        sj_scan_count scan_count
        sj_grid_count grid_count
        sj_bucket_count bucket_count
        int64_t candidates

    int sj_runs_begin(sj_runs *runs, int conditions)
    void sj_runs_end(sj_runs *runs)
    int sj_runs_are_done(const sj_runs *runs)
    int64_t sj_runs_fill(sj_runs *runs, int32_t *out_probe, int32_t *out_row, int32_t *out_run, int64_t capacity)
    int sj_runs_count(sj_runs *runs, int64_t *counts, sj_partner_sums *sums)


cdef class RunIndex:
    """All that probing a run needs and no probe changes; see streamjoin_ds.engine.kernels.twins.runs.RunIndex."""

    cdef sj_run_index _index
    cdef list _kept

    def __init__(self, right, lo, hi, *, first, second, width, bucket_ids=None, bucket_starts=None, fences=None,
                 steps=None, zone=None, right_count=None, past=-1, interval_lo=0.0):
        cdef int condition, slot
        cdef sj_run_index *index = &self._index
        cdef bint is_float
        right, lo, hi = list(right), list(lo), list(hi)
        if not len(right) == len(lo) == len(hi):
            raise _error("right, lo and hi differ in length", "right")
        if len(right) > SJ_MAX_CONDITIONS:
            raise _error("more than 16 conditions", "right")
        first, second = _integer(first, "first"), _integer(second, "second")
        past = _integer(past, "past")
        for name, choice in (("first", first), ("second", second), ("past", past)):
            if not -1 <= choice < len(right):
                raise _error(f"{name} is not the number of a condition", name)
        _check_interval(past, second, right)
        memset(index, 0, sizeof(self._index))
        index.band.run_count = _common_length(right, "right", right_count)
        index.conditions = len(right)
        index.first, index.second = first, second
        self._kept = [right, fences, steps, bucket_ids, bucket_starts]
        for condition in _in_order(len(right), (second, past)):
            is_float = right[condition].dtype == _FLOAT
            slot = index.band.float_count if is_float else index.band.int_count
            index.is_float[condition] = is_float
            index.slot[condition] = slot
            if is_float:
                index.band.float_right[slot] = _float_address(right[condition])
                _set_float_ends(&index.band, slot, lo[condition], hi[condition])
                index.band.float_count = slot + 1
            else:
                index.band.int_right[slot] = _int_address(right[condition])
                index.band.int_lo[slot] = _wide_bound(lo[condition], "lo")
                index.band.int_hi[slot] = _wide_bound(hi[condition], "hi")
                index.band.int_count = slot + 1
            if zone is not None and is_float:
                index.float_smallest[slot] = _float_bound(zone[condition][0], "zone")
                index.float_largest[slot] = _float_bound(zone[condition][1], "zone")
            elif zone is not None:
                index.int_smallest[slot] = zone[condition][0]
                index.int_largest[slot] = zone[condition][1]
        index.has_zone = zone is not None
        self._set_layout(right, width, bucket_ids, bucket_starts, fences)
        if past >= 0:
            index.sorted = SJ_SORTED_INTERVAL
            index.band.interval_lo = _float_bound(interval_lo, "interval_lo")
        if steps is not None and first < 0 and second >= 0:
            _set_steps(&index.steps, steps, right[second])

    @property
    def conditions(self):
        """Number of conditions."""
        return self._index.conditions

    cdef int _set_layout(self, list right, width, bucket_ids, bucket_starts, fences) except -1:
        cdef sj_run_index *index = &self._index
        if index.first < 0:
            bucket_ids = np.zeros(1, dtype=np.int64)
            bucket_starts = np.array([0, index.band.run_count], dtype=np.int64)
            self._kept += [bucket_ids, bucket_starts]
        elif right[index.first].dtype == _FLOAT:
            index.float_width = _float_width(width)
        else:
            index.int_width = _int_width(width)
        if bucket_ids is None or bucket_starts is None:
            raise _error("a bucket attribute needs bucket_ids and bucket_starts", "bucket_ids")
        _check_array(bucket_ids, "bucket_ids", _INT)
        _check_array(bucket_starts, "bucket_starts", _INT)
        if len(bucket_starts) != len(bucket_ids) + 1 or bucket_starts[len(bucket_ids)] != index.band.run_count:
            raise _error("bucket_starts does not fit bucket_ids and the run", "bucket_starts")
        index.bucket_ids = _int_address(bucket_ids)
        index.bucket_starts = _int_address(bucket_starts)
        index.bucket_count = len(bucket_ids)
        index.sorted = SJ_SORTED_NONE
        if index.second >= 0:
            column = right[index.second]
            index.sorted = SJ_SORTED_FLOAT if column.dtype == _FLOAT else SJ_SORTED_INT
            if fences is not None:
                _check_fences(fences, column)
                if column.dtype == _FLOAT:
                    index.float_fences = _float_address(fences)
                else:
                    index.int_fences = _int_address(fences)
        return 0


cdef int _check_fences(fences, column) except -1:
    _check_array(fences, "fences", column.dtype)
    if len(fences) != (len(column) + SJ_FENCE_ROWS - 1) // SJ_FENCE_ROWS:
        raise _error("fences does not fit the run", "fences", "right[second][::FENCE_ROWS]")
    return 0


cdef struct sj_pair_room:
    int32_t *probes
    int32_t *rows
    int32_t *run_numbers
    int64_t count


cdef class RunsProbe:
    """A few probes against many runs; see streamjoin_ds.engine.kernels.twins.runs.RunsProbe."""

    cdef sj_runs _runs
    cdef list _kept
    cdef bint _busy
    cdef bint _is_begun

    def __init__(self, left, indexes, *, implementation=None, last_rows=-1, left_count=None, slice_probes=None):
        cdef int condition
        cdef int64_t run_number
        cdef RunIndex index
        cdef sj_view view
        cdef int are_floats[SJ_MAX_CONDITIONS]
        cdef const sj_implementation *chosen = _implementation(implementation)
        cdef sj_runs *runs = &self._runs
        if runs.indexes != NULL:
            raise _error("this object has probes already", "left", "one object a probing")
        left = list(left)
        indexes = list(indexes)
        if len(left) > SJ_MAX_CONDITIONS:
            raise _error("more than 16 conditions", "left")
        self._kept = [left, indexes]
        runs.probe_count = -1 if left_count is None else left_count
        for condition in range(len(left)):
            _key_view(left[condition], "left", &view)
            if runs.probe_count >= 0 and view.count != runs.probe_count:
                raise _error("the columns of left differ in length", "left")
            runs.probe_count = view.count
            if view.code == b"d":
                runs.float_left[condition] = <const double *>view.items
            else:
                runs.int_left[condition] = <const int64_t *>view.items
            are_floats[condition] = view.code == b"d"
        if runs.probe_count < 0:
            raise _error("without conditions the counts are needed", "left", "pass left_count")
        if runs.probe_count > _MAX_ROWS:
            raise _error("left has more rows than int32 can number", "left")
        runs.slices_end = runs.slice_probes = runs.probe_count
        if slice_probes is not None:
            runs.slice_probes = _integer(slice_probes, "slice_probes")
            if runs.slice_probes < 1:
                raise _error("slice_probes is out of range", "slice_probes", "1 or more, or None")
        runs.scan_fill, runs.grid_fill, runs.bucket_fill = chosen.scan_fill, chosen.grid_fill, chosen.bucket_fill
        runs.scan_count, runs.grid_count, runs.bucket_count = chosen.scan_count, chosen.grid_count, chosen.bucket_count
        runs.run_count = len(indexes)
        runs.last_rows = last_rows
        runs.indexes = <const sj_run_index **>calloc(runs.run_count + 1, sizeof(void *))
        if runs.indexes == NULL:
            raise MemoryError
        for run_number in range(runs.run_count):
            index = indexes[run_number]
            if index._index.conditions != len(left):
                raise _error("left and the indexes differ in their conditions", "left")
            for condition in range(index._index.conditions):
                if index._index.is_float[condition] != are_floats[condition]:
                    raise _error("left and right differ in type", "left")
            runs.indexes[run_number] = &index._index
        if last_rows >= 0 and (not indexes or index._index.bucket_grid != NULL or index._index.first >= 0
                               or index._index.second >= 0 or last_rows > index._index.band.run_count):
            raise _error("last_rows does not fit the last run", "last_rows", "its columns have room, it has no order")
        if sj_runs_begin(runs, len(left)):
            raise MemoryError

    def __dealloc__(self):
        sj_runs_end(&self._runs)
        free(<void *>self._runs.indexes)

    @property
    def candidates(self):
        """Pairs tested so far, in the runs that are finished."""
        return self._runs.candidates

    @property
    def is_done(self):
        """Whether there are no more pairs."""
        return bool(sj_runs_are_done(&self._runs))

    def fill(self, out_probe, out_row, out_run):
        """Write the next pairs and the number of each one's run; 0 means there are no more."""
        cdef int64_t written
        cdef sj_pair_room room
        self._enter(out_probe, out_row, out_run, &room)
        with nogil:
            written = sj_runs_fill(&self._runs, room.probes, room.rows, room.run_numbers, room.count)
        self._busy = False
        if written < 0:
            raise MemoryError
        return written

    def filling(self, out_probe, out_row, out_run):
        """`fill` as a task for a pool."""
        cdef Filling task = Filling.__new__(Filling)
        self._enter(out_probe, out_row, out_run, &task._room)
        task._probing, task._kept = self, (out_probe, out_row, out_run)
        return task

    def counting(self, out_counts, sums=None, run_number=0, first=0):
        """Return a task that adds to each probe's count how many pairs it has; no pairs are written then."""
        cdef RunsCounting task = RunsCounting.__new__(RunsCounting)
        cdef PartnerSums given
        cdef int64_t number
        task._counts = _counts_of(out_counts, self._runs.slices_end, self._is_begun)
        if sums is not None:
            given = sums
            given._begin(run_number, self._runs.run_count, first, self._runs.slices_end)
            for number in range(self._runs.run_count):
                given._check_rows(number + given._sums.run, _rows_of_index(self._runs.indexes[number]))
            task._sums = &given._sums
        self._busy = self._is_begun = True
        task._probing, task._kept = self, (out_counts, sums)
        return task

    cdef int _check_idle(self) except -1:
        if self._busy:
            raise _error("another thread is filling from this object", "fill", "one object per thread")
        return 0

    cdef int _check_columns(self, RunColumns columns) except -1:
        """Refuse columns that lack a row of the runs."""
        cdef int64_t run
        if columns._columns.run_count != self._runs.run_count:
            raise _error("the columns are of other runs than the probing's", "columns")
        for run in range(self._runs.run_count):
            if columns._columns.run_rows[run] < _rows_of_index(self._runs.indexes[run]):
                raise _error("the columns are of other runs than the probing's", "columns")
        return 0

    cdef int _enter(self, out_probe, out_row, out_run, sj_pair_room *room) except -1:
        cdef sj_view probes, rows, run_numbers
        _int32_view(out_probe, "out_probe", True, &probes)
        _int32_view(out_row, "out_row", True, &rows)
        _int32_view(out_run, "out_run", True, &run_numbers)
        if rows.count != probes.count or run_numbers.count != probes.count or probes.count < SJ_MIN_CAPACITY:
            raise _error("the outputs must be of one length, 64 at least", "out_probe")
        self._check_idle()
        self._busy = self._is_begun = True
        room.probes, room.rows = <int32_t *>probes.items, <int32_t *>rows.items
        room.run_numbers = <int32_t *>run_numbers.items
        room.count = probes.count
        return 0


cdef int64_t _rows_of_index(const sj_run_index *index) noexcept:
    """Return how many rows of a run a probing may name."""
    if index.bucket_grid != NULL:
        return index.bucket_grid.chunk_room * SJ_CHUNK_ROWS
    return index.band.run_count


cdef class RunsCounting(Task):
    """The task that counts the pairs of each probe in many runs."""

    cdef RunsProbe _probing
    cdef int64_t *_counts
    cdef sj_partner_sums *_sums
    cdef int _failed

    cdef void _work(self) noexcept nogil:
        self._failed = sj_runs_count(&self._probing._runs, self._counts, self._sums)

    cdef object _done(self):
        self._probing._busy = False
        if self._failed:
            raise MemoryError
        return None


cdef class Filling(Task):
    """The task that fills one buffer with pairs; its result is their number."""

    cdef RunsProbe _probing
    cdef sj_pair_room _room
    cdef int64_t _written

    cdef void _work(self) noexcept nogil:
        self._written = sj_runs_fill(&self._probing._runs, self._room.probes, self._room.rows, self._room.run_numbers,
                                     self._room.count)

    cdef object _done(self):
        self._probing._busy = False
        if self._written < 0:
            raise MemoryError
        return self._written
