# The nearest partners of probes, kept while pairs come; semantics: streamjoin_ds.engine.kernels.twins.nearest.

cdef extern from "nearest/nearest.h" nogil:
    enum: SJ_TIES

    ctypedef struct sj_near:
        pass

    ctypedef struct sj_nearest:
        int64_t count
        int64_t k
        int32_t *seen
        double *distances
        int32_t *used
        sj_near *kept

    ctypedef struct sj_near_pairs:
        int64_t count
        const int32_t *positions
        const double *distances
        const int64_t *ties[SJ_TIES]
        const int32_t *run_numbers
        const int32_t *rows

    int64_t sj_nearest_select(sj_nearest *nearest, const sj_near_pairs *pairs, int32_t *selected)
    int sj_nearest_keep(sj_nearest *nearest, const sj_near_pairs *pairs)
    int64_t sj_nearest_total(const sj_nearest *nearest)
    void sj_nearest_rank(sj_nearest *nearest, int32_t *run_numbers, int32_t *rows)

cdef extern from "nearest/nearest_probe.h" nogil:
    ctypedef struct sj_nearest_probe:
        sj_distances distances
        const sj_run_columns *ties[SJ_TIES]
        sj_nearest *nearest

    int sj_nearest_take(sj_nearest_probe *probe, sj_runs *runs)

NEAREST_TIES = SJ_TIES


cdef class NearestPairs:
    """The k nearest pairs of each of some probes; see streamjoin_ds.engine.kernels.twins.nearest.NearestPairs."""

    cdef sj_nearest _nearest
    cdef bint _is_ranked
    cdef readonly bint is_exact

    def __init__(self, count, k):
        cdef sj_nearest *made = &self._nearest
        count, k = _integer(count, "count"), _integer(k, "k")
        if made.seen != NULL:
            raise _error("this object has probes already", "count", "one object for some probes")
        if not 0 <= count <= _MAX_ROWS:
            raise _error("count is out of range", "count", "0 to 2^31 - 1")
        if not 1 <= k <= _MAX_ROWS or count * k > _MAX_ROWS:
            raise _error("k is out of range", "k", "1 and more; count times k is at most 2^31 - 1")
        made.count, made.k, self.is_exact = count, k, True
        made.seen = <int32_t *>calloc(made.count + 1, sizeof(int32_t))
        made.used = <int32_t *>calloc(made.count + 1, sizeof(int32_t))
        made.distances = <double *>malloc((made.count * made.k + 1) * sizeof(double))
        made.kept = <sj_near *>malloc((made.count * made.k + 1) * sizeof(sj_near))
        if made.seen == NULL or made.used == NULL or made.distances == NULL or made.kept == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self._nearest.seen)
        free(self._nearest.used)
        free(self._nearest.distances)
        free(self._nearest.kept)

    cdef int _pairs(self, positions, distances, sj_near_pairs *pairs) except -1:
        cdef sj_view view
        if self._is_ranked:
            raise _error("the pairs were ranked already", "positions", "one object for some probes")
        _int32_view(positions, "positions", False, &view)
        pairs.count, pairs.positions = view.count, <const int32_t *>view.items
        _check_array(distances, "distances", _FLOAT)
        pairs.distances = _float_address(distances)
        if len(distances) != pairs.count:
            raise _error("positions and distances differ in length", "distances")
        return 0

    def select(self, positions, distances):
        """Return the numbers of the pairs that may be among the nearest, ascending: by their distances alone."""
        cdef sj_near_pairs pairs
        cdef int32_t *selected
        cdef int64_t written
        self._pairs(positions, distances, &pairs)
        out = np.empty(pairs.count, dtype=_INT32)
        selected = _int32_out(out)
        with nogil:
            written = sj_nearest_select(&self._nearest, &pairs, selected)
        if written < 0:
            raise _error("positions point outside the probes", "positions")
        return out[:written]

    def keep(self, positions, distances, ties, run_numbers, rows):
        """Keep the pairs that are among the nearest, by distance and then by `ties`."""
        cdef sj_near_pairs pairs
        cdef sj_view view
        cdef int status, tie
        self._pairs(positions, distances, &pairs)
        ties = list(ties)
        if len(ties) != SJ_TIES:
            raise _error("there must be three columns that decide ties", "ties")
        for tie in range(SJ_TIES):
            _check_array(ties[tie], "ties", _INT)
            if len(ties[tie]) != pairs.count:
                raise _error("positions and ties differ in length", "ties")
            pairs.ties[tie] = _int_address(ties[tie])
        for name, column in (("run_numbers", run_numbers), ("rows", rows)):
            _int32_view(column, name, False, &view)
            if view.count != pairs.count:
                raise _error(f"positions and {name} differ in length", name)
            if name == "rows":
                pairs.rows = <const int32_t *>view.items
            else:
                pairs.run_numbers = <const int32_t *>view.items
        with nogil:
            status = sj_nearest_keep(&self._nearest, &pairs)
        if status < 0:
            raise _error("positions point outside the probes", "positions")

    def taking(self, RunsProbe probing not None, PairDistances distances not None, own, RunColumns runs not None, ties):
        """Return a task that takes all pairs of a probing with their distances; `is_exact` tells whether it could."""
        cdef Taking task = Taking.__new__(Taking)
        cdef RunColumns column
        cdef int tie
        own, ties = list(own), list(ties)
        if self._is_ranked:
            raise _error("the pairs were ranked already", "taking", "one object for some probes")
        if probing._is_begun:
            raise _error("some pairs of this object were written already", "probing", "one object a probing")
        if probing._runs.slices_end > self._nearest.count:
            raise _error("there are fewer probes than the probing has", "probing")
        distances._begin(own, runs, &task._probe.distances)
        probing._check_columns(runs)
        if len(ties) > SJ_TIES:
            raise _error("there are three columns at most that decide ties", "ties")
        for tie in range(len(ties)):
            column = ties[tie]
            if column is None or column._columns.column_count != 1 or column._kept[0][0].dtype != _INT:
                raise _error("what decides a tie is a column of int64", "ties")
            probing._check_columns(column)
            task._probe.ties[tie] = &column._columns
        task._probe.nearest = &self._nearest
        task._nearest, task._probing, task._kept = self, probing, (distances, own, runs, ties)
        probing._busy = probing._is_begun = True
        return task

    def ranked(self):
        """Return how many pairs each probe has, then their run numbers and rows, each probe's nearest first."""
        cdef int64_t probe
        cdef int32_t *counts
        cdef int32_t *run_numbers
        cdef int32_t *rows
        if self._is_ranked:
            raise _error("the pairs were ranked already", "ranked", "one object for some probes")
        self._is_ranked = True
        counted = np.empty(self._nearest.count, dtype=_INT32)
        counts = _int32_out(counted)
        for probe in range(self._nearest.count):
            counts[probe] = self._nearest.used[probe]
        total = sj_nearest_total(&self._nearest)
        places, found = np.empty(total, dtype=_INT32), np.empty(total, dtype=_INT32)
        run_numbers, rows = _int32_out(places), _int32_out(found)
        with nogil:
            sj_nearest_rank(&self._nearest, run_numbers, rows)
        return counted, places, found


cdef class Taking(Task):
    """The task that takes all pairs of a probing."""

    cdef NearestPairs _nearest
    cdef RunsProbe _probing
    cdef sj_nearest_probe _probe
    cdef int _status

    cdef void _work(self) noexcept nogil:
        self._status = sj_nearest_take(&self._probe, &self._probing._runs)

    cdef object _done(self):
        self._probing._busy = False
        if self._status == -1:
            raise MemoryError
        if self._status < 0:
            raise _error("the probing has probes or rows that are outside", "probing")
        if self._status:
            self._nearest.is_exact = False
        return None
