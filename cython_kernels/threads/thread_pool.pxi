# Kernels' tasks and the threads that do them; semantics: streamjoin_ds.engine.kernels.twins.threads.

cdef extern from "threads/thread_pool.h" nogil:
    ctypedef struct sj_task:
        void (*work)(void *of) noexcept nogil
        void *of

    ctypedef struct sj_pool:
        pass

    sj_pool *sj_pool_new(int helpers, const int *cores, int core_count)
    void sj_pool_add(sj_pool *pool, sj_task *task)
    void sj_pool_wait(sj_pool *pool, sj_task *task)
    int sj_pool_helpers(const sj_pool *pool)
    void sj_pool_end(sj_pool *pool)


# Copying fewer rows than this takes less time than to release the GIL and take it again.
cdef enum:
    _FEW_ROWS = 256


cdef class Task:
    """A piece of work that is done once; see streamjoin_ds.engine.kernels.twins.threads.Task."""

    cdef object _kept
    cdef bint _is_taken
    cdef sj_task _task

    cdef void _work(self) noexcept nogil:
        """Do all of the work that needs no Python; each kind of task has its own."""

    cdef object _done(self):
        """Return the result, or raise the error; each kind of task has its own."""

    cdef int _take(self) except -1:
        if self._is_taken:
            raise _error("a task is done once", "task")
        self._is_taken = True
        return 0

    def do(self):
        """Do the task at once, in this thread, and return its result."""
        self._take()
        with nogil:
            self._work()
        return self._done()

    cdef object _do_rows(self, int64_t rows):
        """Do a task that copies `rows` rows and that no other thread can have; few rows are copied under the GIL."""
        if rows < _FEW_ROWS:
            self._work()
        else:
            with nogil:
                self._work()
        return self._done()


cdef void _worked(void *task) noexcept nogil:
    (<Task>task)._work()


cdef class ThreadPool:
    """Threads that do tasks; see streamjoin_ds.engine.kernels.twins.threads.ThreadPool."""

    cdef sj_pool *_pool
    cdef dict _added  # by id: tasks not waited for yet, which keep alive the objects that they work on

    def __init__(self, helpers, cores=()):
        cdef int place
        cdef int *numbers
        helpers, cores = _integer(helpers, "helpers"), [_integer(core, "cores") for core in cores]
        if self._pool != NULL:
            raise _error("this object has helpers already", "helpers")
        if not 0 <= helpers <= 1024 or len(cores) > 1024 or not all(0 <= core <= INT32_MAX for core in cores):
            raise _error("helpers or cores are out of range", "helpers", "0 to 1024 of each")
        self._added = {}
        numbers = <int *>calloc(len(cores) + 1, sizeof(int))
        if numbers == NULL:
            raise MemoryError
        for place, core in enumerate(cores):
            numbers[place] = core
        self._pool = sj_pool_new(helpers, numbers, len(cores))
        free(numbers)
        if self._pool == NULL:
            raise MemoryError

    def __del__(self):
        # The garbage collector may find the pool in a cycle: tasks must be done before it takes anything from them.
        cdef Task task
        if self._pool != NULL:
            for task in self._added.values():
                with nogil:
                    sj_pool_wait(self._pool, &task._task)

    def __dealloc__(self):
        if self._pool != NULL:
            with nogil:
                sj_pool_end(self._pool)

    @property
    def helpers(self):
        """How many threads help the caller in this process."""
        return sj_pool_helpers(self._pool)

    def add(self, Task task not None):
        """Have a task done by the next free thread; tasks are begun in the order in which they were added."""
        task._take()
        task._task.work, task._task.of = _worked, <void *>task
        self._added[id(task)] = task
        sj_pool_add(self._pool, &task._task)

    def wait(self, Task task not None):
        """Return the result of an added task, or raise its error; until the task is done, the caller does tasks too."""
        if self._added.pop(id(task), None) is None:
            raise _error("this task was not added, or waited for already", "task")
        with nogil:
            sj_pool_wait(self._pool, &task._task)
        return task._done()

    def give_up(self, tasks):
        """Wait for the tasks among these that were not waited for yet, and drop their results and errors."""
        for task in tasks:
            if id(task) in self._added:
                try:
                    self.wait(task)
                except (KernelError, MemoryError):
                    pass

    def finish(self):
        """Wait until all added tasks are done; their results can still be asked for with `wait`."""
        cdef Task task
        for task in list(self._added.values()):
            with nogil:
                sj_pool_wait(self._pool, &task._task)

    def settle(self):
        """Wait for all added tasks that were not waited for yet, and drop their results and errors."""
        if self._added:
            self.give_up(list(self._added.values()))
