# A gate that lets one thread through at a time; semantics: streamjoin_ds.engine.kernels.twins.threads.

cdef object _this_thread = threading.get_ident


cdef class Gate:
    """A gate that lets one thread through at a time; see streamjoin_ds.engine.kernels.twins.threads.Gate."""

    cdef object _acquire
    cdef object _release
    cdef object _inside

    def __init__(self):
        lock = threading.Lock()
        self._acquire, self._release = lock.acquire, lock.release

    @property
    def is_mine(self):
        """Whether the calling thread is inside."""
        return self._inside is not None and self._inside == _this_thread()

    def through(self, work, *given):
        """Return what `work` returns, called while no other thread is inside."""
        me = _this_thread()
        if self._inside == me:
            raise _error("this thread is inside already", "gate")
        self._acquire()
        # From here on only `work` can see a signal's exception: Python looks for signals in Python code, not in this.
        self._inside = me
        try:
            return work(*given)
        finally:
            self._inside = None
            self._release()
