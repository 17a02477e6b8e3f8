# Rows of a window by the grid cell they lie in; semantics: streamjoin_ds.engine.kernels.twins.bucket.

cdef extern from "bucket/bucket_grid.h" nogil:
    enum: SJ_CHUNK_ROWS
    enum: SJ_BUCKET_KEYS

    ctypedef struct sj_cell_key:
        int is_float
        double float_width
        int64_t int_width

    ctypedef struct sj_chunk:
        pass

    ctypedef struct sj_bucket_grid:
        int column_count
        unsigned char **columns
        int *item_bytes
        const int64_t *positions
        int64_t bucket_count
        int64_t chunk_room
        sj_chunk *chunks
        int64_t free_chunk
        int64_t unused_chunk
        int64_t rows
        int64_t swept
        uint64_t stride
        int key_count
        sj_cell_key keys[SJ_BUCKET_KEYS]

    ctypedef struct sj_bucket_columns:
        int conditions
        int is_float[SJ_MAX_CONDITIONS]
        int item[SJ_MAX_CONDITIONS]
        const void *right[SJ_MAX_CONDITIONS]
        int slot[SJ_MAX_CONDITIONS]
        int key_condition[SJ_BUCKET_KEYS]

    void sj_bucket_begin(sj_bucket_grid *grid)
    int64_t sj_bucket_insert(sj_bucket_grid *grid, const unsigned char *const *columns, const double *const *floats,
                             const int64_t *const *ints, int64_t begin, int64_t count, int64_t lowest_kept)
    int64_t sj_bucket_sweep(sj_bucket_grid *grid, int64_t count, int64_t lowest_kept)
    int64_t sj_bucket_live_rows(const sj_bucket_grid *grid, int64_t lowest_kept, int64_t step)
    int64_t sj_bucket_rows(const sj_bucket_grid *grid, int64_t begin, int64_t end, int32_t *rows)
    int64_t sj_bucket_spread_rows(const sj_bucket_grid *grid, int64_t most, int32_t *rows)
    int64_t sj_bucket_crowd(const sj_bucket_grid *grid, const int32_t *buckets, int64_t count, int64_t most)
    int sj_bucket_numbers(const sj_bucket_grid *grid, const double *const *floats, const int64_t *const *ints,
                          int64_t count, int32_t *buckets)


cdef class BucketGrid:
    """Chunks of rows by their cell; see streamjoin_ds.engine.kernels.twins.bucket.BucketGrid."""

    cdef sj_bucket_grid _grid
    cdef readonly list columns
    cdef object _chunks
    cdef int _position
    cdef bint _busy
    cdef int64_t _inserted

    def __init__(self, columns, *, position, buckets, keys, stride=1, swept=0):
        cdef int place
        cdef sj_bucket_grid *grid = &self._grid
        if grid.columns != NULL:
            raise _error("this object has columns already", "columns")
        buckets = _integer(buckets, "buckets")
        keys = list(keys)
        if len(keys) > SJ_BUCKET_KEYS:
            raise _error("a cell has two keys at most", "keys")
        for place, (is_float, width) in enumerate(keys):
            grid.keys[place].is_float = bool(is_float)
            if is_float:
                grid.keys[place].float_width = _float_width(width)
            else:
                grid.keys[place].int_width = _int_width(width)
        grid.key_count = len(keys)
        stride = _integer(stride, "stride")
        if not 1 <= stride <= INT64_MAX:
            raise _error("stride must be > 0 and within int64", "stride")
        grid.stride = stride
        self._set_columns(list(columns), _integer(position, "position"))
        if not 1 <= buckets <= grid.chunk_room:
            raise _error("buckets is out of range", "buckets", "one chunk of 16 rows a bucket, at least")
        grid.bucket_count = buckets
        self._set_chunks(np.empty(grid.chunk_room, dtype=np.int64))
        sj_bucket_begin(grid)
        swept = _integer(swept, "swept")
        if not 0 <= swept < buckets:
            raise _error("swept is not the number of a bucket", "swept")
        grid.swept = swept

    cdef int _set_columns(self, list columns, position) except -1:
        cdef int place
        cdef sj_bucket_grid *grid = &self._grid
        if not columns:
            raise _error("a grid has a column at least", "columns")
        rows = len(columns[0])
        if rows % SJ_CHUNK_ROWS or rows > _MAX_ROWS:
            raise _error("columns must have room for whole chunks of 16 rows", "columns")
        for array in columns:
            if not isinstance(array, np.ndarray):
                raise _error("a column is not an ndarray", "columns")
            _check_array(array, "columns", array.dtype, True)
            if len(array) != rows:
                raise _error("columns differ in length", "columns")
            if array.dtype.itemsize not in (1, 2, 4, 8, 16) or array.dtype.hasobject:
                raise _error("column items must have 1, 2, 4, 8 or 16 bytes", "columns")
        if not 0 <= position < len(columns) or columns[position].dtype != _INT:
            raise _error("position is not the number of an int64 column", "position")
        addresses = <unsigned char **>calloc(len(columns), sizeof(void *))
        item_bytes = <int *>calloc(len(columns), sizeof(int))
        if addresses == NULL or item_bytes == NULL:
            free(addresses)
            free(item_bytes)
            raise MemoryError
        grid.columns, grid.item_bytes = addresses, item_bytes
        for place, array in enumerate(columns):
            item_bytes[place] = array.dtype.itemsize
            addresses[place] = _bytes_out(array)
        grid.column_count = len(columns)
        grid.positions = <const int64_t *>addresses[position]
        grid.chunk_room = rows // SJ_CHUNK_ROWS
        self.columns, self._position = columns, position
        return 0

    cdef int _set_chunks(self, chunks) except -1:
        cdef int64_t[::1] words = chunks
        self._chunks = chunks
        self._grid.chunks = <sj_chunk *>&words[0]
        return 0

    def __dealloc__(self):
        free(self._grid.columns)
        free(self._grid.item_bytes)

    def enlarged(self, columns):
        """Return the same grid in columns with room for more chunks; its rows are copied there."""
        cdef BucketGrid other = BucketGrid.__new__(BucketGrid)
        columns = list(columns)
        if len(columns) != len(self.columns) or any(len(new) < len(old) or new.dtype != old.dtype
                                                    for new, old in zip(columns, self.columns)):
            raise _error("the new columns do not fit the old", "columns")
        other._grid = self._grid
        other._grid.columns, other._grid.item_bytes = NULL, NULL
        other._set_columns(columns, self._position)
        for new, old in zip(columns, self.columns):
            new[:len(old)] = old
        chunks = np.empty(other._grid.chunk_room, dtype=np.int64)
        chunks[:len(self._chunks)] = self._chunks
        other._set_chunks(chunks)
        other._inserted = self._inserted
        return other

    @property
    def rows(self):
        """How many rows are in the chunks, including dead rows that were not dropped yet."""
        return self._grid.rows

    @property
    def inserted(self):
        """How many rows were ever inserted. If the insertion of a batch broke off, this tells how many rows are in."""
        return self._inserted

    def settle(self):
        """Forget tasks that were made and never begun; the caller knows that no thread is at work on the grid."""
        self._busy = False

    @property
    def swept(self):
        """The bucket where the next sweep begins."""
        return self._grid.swept

    @property
    def buckets(self):
        """How many buckets there are."""
        return self._grid.bucket_count

    cdef int _enter(self) except -1:
        if self._busy:
            raise _error("another thread is at work on this grid", "grid", "one thread at a time")
        return 0

    cdef int _set_keys(self, list keys, int64_t count, const double **floats, const int64_t **ints) except -1:
        cdef int place
        if len(keys) != self._grid.key_count:
            raise _error("there must be an array for each key", "keys")
        for place, array in enumerate(keys):
            if not isinstance(array, np.ndarray) or len(array) != count:
                raise _error("columns and keys differ in length", "keys")
            if (array.dtype == _FLOAT) != bool(self._grid.keys[place].is_float):
                raise _error("a key is of another type than the grid's", "keys")
            floats[place], ints[place] = NULL, NULL
            if array.dtype == _FLOAT:
                floats[place] = _float_address(array)
            else:
                ints[place] = _int_address(array)
        return 0

    def insert(self, columns, keys, begin, lowest_kept):
        """Append the rows of a batch from `begin` on; return the row where it stopped: the end, or no chunk is left."""
        return self.inserting(columns, keys, begin, lowest_kept).do()

    def inserting(self, columns, keys, begin, lowest_kept, swept_buckets=0):
        """`insert` as a task for a pool; if all rows are in, the task then does `sweep`."""
        cdef Inserting task = Inserting.__new__(Inserting)
        cdef int place
        columns, keys = list(columns), list(keys)
        if len(columns) != len(self.columns):
            raise _error("there must be as many columns as the grid has", "columns")
        task._count, task._begin = len(columns[0]), _integer(begin, "begin")
        task._lowest, task._swept = _integer(lowest_kept, "lowest_kept"), _integer(swept_buckets, "swept_buckets")
        if not 0 <= task._begin <= task._count:
            raise _error("begin is out of range", "begin")
        self._enter()
        for array, mine in zip(columns, self.columns):
            if not isinstance(array, np.ndarray) or len(array) != task._count:
                raise _error("the columns differ in length", "columns")
            _check_array(array, "columns", mine.dtype)
        self._set_keys(keys, task._count, task._floats, task._ints)
        task._addresses = <const unsigned char **>calloc(len(columns), sizeof(void *))
        if task._addresses == NULL:
            raise MemoryError
        for place, array in enumerate(columns):
            task._addresses[place] = _bytes_address(array)
        task._grid, task._kept = self, (columns, keys)
        self._busy = True
        return task

    def sweep(self, buckets, lowest_kept):
        """Drop dead rows of the next `buckets` buckets, where a bucket has enough of them; return how many rows."""
        return self.sweeping(buckets, lowest_kept).do()

    def sweeping(self, buckets, lowest_kept):
        """`sweep` as a task for a pool."""
        cdef Sweeping task = Sweeping.__new__(Sweeping)
        task._buckets, task._lowest = _integer(buckets, "buckets"), _integer(lowest_kept, "lowest_kept")
        self._enter()
        task._grid = self
        self._busy = True
        return task

    def live_rows(self, lowest_kept, step=1):
        """Count the rows that are not dead in the first bucket and each `step`-th after it."""
        cdef int64_t lowest = _integer(lowest_kept, "lowest_kept")
        cdef int64_t every, live
        step = _integer(step, "step")
        if not 1 <= step <= _MAX_ROWS:
            raise _error("step is out of range", "step", "1 or more")
        every = step
        self._enter()
        with nogil:
            live = sj_bucket_live_rows(&self._grid, lowest, every)
        return live

    def row_numbers(self, begin=0, end=None):
        """Return the rows of buckets ``begin:end``, bucket by bucket, in order of arrival there, as int32."""
        cdef int64_t first = _integer(begin, "begin")
        cdef int64_t last = self._grid.bucket_count if end is None else _integer(end, "end")
        cdef int64_t count
        cdef int32_t *out
        if not 0 <= first <= last <= self._grid.bucket_count:
            raise _error("begin and end are not a range of buckets", "begin")
        self._enter()
        with nogil:
            count = sj_bucket_rows(&self._grid, first, last, NULL)
        rows = np.empty(count, dtype=np.int32)
        out = _int32_out(rows)
        with nogil:
            sj_bucket_rows(&self._grid, first, last, out)
        return rows

    def spread_rows(self, most):
        """Return rows evenly spaced over all buckets, `most` of them at most, as int32."""
        cdef int64_t limit, count
        cdef int32_t *out
        most = _integer(most, "most")
        if not 1 <= most <= _MAX_ROWS:
            raise _error("most is out of range", "most", "1 or more")
        limit = most
        self._enter()
        rows = np.empty(most, dtype=np.int32)
        out = _int32_out(rows)
        with nogil:
            count = sj_bucket_spread_rows(&self._grid, limit, out)
        return rows[:count]

    def crowd(self, keys, most):
        """Return how many rows the buckets of these keys have, all together; each counts with `most` at most."""
        cdef int64_t limit = _integer(most, "most")
        cdef int64_t count, total
        cdef const int32_t *numbers
        if limit < 1:
            raise _error("most is out of range", "most", "1 or more")
        buckets = self.bucket_numbers(keys)
        numbers, count = _int32_out(buckets), len(buckets)
        self._enter()
        with nogil:
            total = sj_bucket_crowd(&self._grid, numbers, count, limit)
        return total

    def bucket_numbers(self, keys):
        """Return the bucket that each row with these keys goes to, as int32."""
        cdef const double *floats[SJ_BUCKET_KEYS]
        cdef const int64_t *ints[SJ_BUCKET_KEYS]
        cdef int64_t count
        cdef int status
        cdef int32_t *out
        keys = list(keys)
        if not keys:
            raise _error("a grid without keys has one cell", "keys")
        count = len(keys[0])
        self._set_keys(keys, count, floats, ints)
        buckets = np.empty(count, dtype=np.int32)
        out = _int32_out(buckets)
        with nogil:
            status = sj_bucket_numbers(&self._grid, floats, ints, count, out)
        if status < 0:
            raise MemoryError
        return buckets


cdef class Inserting(Task):
    """The task that appends rows to a grid; its result is the row where it stopped."""

    cdef BucketGrid _grid
    cdef const unsigned char **_addresses
    cdef const double *_floats[SJ_BUCKET_KEYS]
    cdef const int64_t *_ints[SJ_BUCKET_KEYS]
    cdef int64_t _begin
    cdef int64_t _count
    cdef int64_t _lowest
    cdef int64_t _swept
    cdef int64_t _stopped

    def __dealloc__(self):
        free(<void *>self._addresses)

    cdef void _work(self) noexcept nogil:
        self._stopped = sj_bucket_insert(&self._grid._grid, self._addresses, self._floats, self._ints, self._begin,
                                         self._count, self._lowest)
        if self._stopped > self._begin:
            self._grid._inserted += self._stopped - self._begin
        if self._stopped == self._count:
            sj_bucket_sweep(&self._grid._grid, self._swept, self._lowest)

    cdef object _done(self):
        self._grid._busy = False
        if self._stopped < 0:
            raise MemoryError
        return self._stopped


cdef class Sweeping(Task):
    """The task that drops dead rows of some buckets; its result is how many."""

    cdef BucketGrid _grid
    cdef int64_t _buckets
    cdef int64_t _lowest
    cdef int64_t _dropped

    cdef void _work(self) noexcept nogil:
        self._dropped = sj_bucket_sweep(&self._grid._grid, self._buckets, self._lowest)

    cdef object _done(self):
        self._grid._busy = False
        return self._dropped
