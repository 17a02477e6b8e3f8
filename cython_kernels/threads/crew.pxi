# Pieces of native work, done by several threads at once; semantics: streamjoin_ds.engine.reference.crew.

cdef extern from "threads/crew.h" nogil:
    ctypedef struct sj_task:
        void (*work)(void *of) noexcept nogil
        void *of

    ctypedef struct sj_crew:
        pass

    sj_crew *sj_crew_new(int helpers, const int *cores, int core_count)
    void sj_crew_add(sj_crew *crew, sj_task *task)
    void sj_crew_wait(sj_crew *crew, sj_task *task)
    int sj_crew_helpers(const sj_crew *crew)
    void sj_crew_end(sj_crew *crew)


# Rows that are copied sooner than the GIL is let go of and taken again.
cdef enum:
    _FEW_ROWS = 256


cdef class Task:
    """A piece of work whose arguments were checked, to be done once; see streamjoin_ds.engine.reference.crew.Task."""

    cdef object _kept
    cdef bint _is_taken
    cdef sj_task _task

    cdef void _work(self) noexcept nogil:
        """All that needs no Python."""

    cdef object _done(self):
        """What came of it; raises what went wrong."""

    cdef int _take(self) except -1:
        if self._is_taken:
            raise _error("a task is done once", "task")
        self._is_taken = True
        return 0

    def do(self):
        """Do it here and now."""
        self._take()
        with nogil:
            self._work()
        return self._done()

    cdef object _do_rows(self, int64_t rows):
        """`do` of one that nobody else has, which copies so many rows."""
        if rows < _FEW_ROWS:
            self._work()
        else:
            with nogil:
                self._work()
        return self._done()


cdef void _worked(void *task) noexcept nogil:
    (<Task>task)._work()


cdef class Crew:
    """Threads that do tasks; see streamjoin_ds.engine.reference.crew.Crew."""

    cdef sj_crew *_crew
    cdef dict _added  # by number; they are kept until they are done, and with them what they work on

    def __init__(self, helpers, cores=()):
        cdef int place
        cdef int *numbers
        helpers, cores = _integer(helpers, "helpers"), [_integer(core, "cores") for core in cores]
        if self._crew != NULL:
            raise _error("this object has helpers already", "helpers")
        if not 0 <= helpers <= 1024 or len(cores) > 1024 or not all(0 <= core <= INT32_MAX for core in cores):
            raise _error("helpers or cores are out of range", "helpers", "0 to 1024 of each")
        self._added = {}
        numbers = <int *>calloc(len(cores) + 1, sizeof(int))
        if numbers == NULL:
            raise MemoryError
        for place, core in enumerate(cores):
            numbers[place] = core
        self._crew = sj_crew_new(helpers, numbers, len(cores))
        free(numbers)
        if self._crew == NULL:
            raise MemoryError

    def __del__(self):
        # Before the collector of a cycle takes anything from tasks that are at work.
        cdef Task task
        if self._crew != NULL:
            for task in self._added.values():
                with nogil:
                    sj_crew_wait(self._crew, &task._task)

    def __dealloc__(self):
        if self._crew != NULL:
            with nogil:
                sj_crew_end(self._crew)

    @property
    def helpers(self):
        """How many threads help the caller in this process."""
        return sj_crew_helpers(self._crew)

    def add(self, Task task not None):
        """Have a task done by whoever is free; it is begun after those that were added before."""
        task._take()
        task._task.work, task._task.of = _worked, <void *>task
        self._added[id(task)] = task
        sj_crew_add(self._crew, &task._task)

    def wait(self, Task task not None):
        """What came of a task that was added; until it is done the caller does tasks too."""
        if self._added.pop(id(task), None) is None:
            raise _error("this task was not added, or waited for already", "task")
        with nogil:
            sj_crew_wait(self._crew, &task._task)
        return task._done()

    def give_up(self, tasks):
        """Wait for those of these tasks that were not waited for yet; what came of them is of no interest."""
        for task in tasks:
            if id(task) in self._added:
                try:
                    self.wait(task)
                except (KernelError, MemoryError):
                    pass

    def finish(self):
        """Wait until all that was added is done; who added it may still ask what came of it."""
        cdef Task task
        for task in list(self._added.values()):
            with nogil:
                sj_crew_wait(self._crew, &task._task)

    def settle(self):
        """Wait for all that was added and not waited for; what came of it is of no interest."""
        if self._added:
            self.give_up(list(self._added.values()))
