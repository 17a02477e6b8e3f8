# Distances of pairs, calculated where their columns lie; semantics: streamjoin_ds.engine.kernels.twins.nearest.

cdef extern from "nearest/distances.h" nogil:
    enum: SJ_MAX_STEPS
    enum: SJ_STEP_OWN
    enum: SJ_STEP_OTHER
    enum: SJ_STEP_FLOAT
    enum: SJ_STEP_INT
    enum: SJ_STEP_WIDEN
    enum: SJ_STEP_INT_ADD
    enum: SJ_STEP_COUNT

    ctypedef enum sj_step_op:
        pass

    ctypedef struct sj_step:
        sj_step_op op
        int left
        int right
        int is_float
        int is_wide
        double real
        int64_t whole

    ctypedef struct sj_distances:
        int64_t step_count
        sj_step steps[SJ_MAX_STEPS]
        const unsigned char *own[SJ_MAX_STEPS]
        int own_bytes[SJ_MAX_STEPS]
        int64_t probe_count
        const sj_run_columns *runs
        sj_selection selection
        const int32_t *positions
        int is_whole

    int sj_distances_fill(const sj_distances *distances, double *out)

MAX_STEPS = SJ_MAX_STEPS

_STEPS = ("own", "other", "float", "int", "widen", "add", "sub", "mul", "div", "abs", "neg", "sqrt",
          "int add", "int sub", "int mul", "int abs", "int neg")
_ALONE = ("widen", "abs", "neg", "sqrt", "int abs", "int neg")


cdef class PairDistances:
    """The distances of pairs; see streamjoin_ds.engine.kernels.twins.nearest.PairDistances."""

    cdef sj_distances _distances
    cdef int _own_count
    cdef int _other_count

    def __init__(self, steps):
        cdef sj_step *step
        cdef int number, operand
        cdef bint takes_float
        cdef bint gives_float[SJ_MAX_STEPS]
        steps = list(steps)
        if not 0 < len(steps) <= SJ_MAX_STEPS:
            raise _error("there are too many steps, or none", "steps", f"1 to {SJ_MAX_STEPS}")
        self._distances.step_count = len(steps)
        for number in range(len(steps)):
            op, left, right, is_float = steps[number]
            if op not in _STEPS:
                raise _error("a step is not known", "steps", ", ".join(_STEPS))
            step = &self._distances.steps[number]
            step.op = <sj_step_op>(<int>_STEPS.index(op))
            step.left, step.right, step.real, step.whole = 0, 0, 0.0, 0
            step.is_float, step.is_wide = 0, 0
            gives_float[number] = step.op < SJ_STEP_INT_ADD and step.op != SJ_STEP_INT
            if step.op == SJ_STEP_OWN or step.op == SJ_STEP_OTHER:
                left = _integer(left, "steps")
                if not 0 <= left < SJ_MAX_STEPS:
                    raise _error("the number of a column is out of range", "steps")
                step.left, step.is_float, step.is_wide = left, bool(is_float), bool(right)
                gives_float[number] = step.is_float or step.is_wide
                if step.op == SJ_STEP_OWN:
                    self._own_count = max(self._own_count, step.left + 1)
                else:
                    self._other_count = max(self._other_count, step.left + 1)
            elif step.op == SJ_STEP_FLOAT:
                step.real = float(left)
            elif step.op == SJ_STEP_INT:
                left = _integer(left, "steps")
                if not INT64_MIN <= left <= INT64_MAX:
                    raise _error("a whole number does not fit int64", "steps")
                step.whole = left
            else:
                takes_float = step.op < SJ_STEP_INT_ADD and step.op != SJ_STEP_WIDEN
                operands = [left] if op in _ALONE else [left, right]
                for operand_value in operands:
                    operand = -1 if operand_value is None else _integer(operand_value, "steps")
                    if not 0 <= operand < number or gives_float[operand] != takes_float:
                        raise _error("a step needs earlier steps of its own type", "steps")
                step.left = operands[0]
                step.right = operands[len(operands) - 1]
        self._distances.is_whole = not gives_float[len(steps) - 1]

    def fill(self, own, RunColumns runs not None, run_numbers, positions, rows, out):
        """Write the distance of each pair; return False where int64 or float64 cannot hold one exactly."""
        cdef sj_distances given
        cdef sj_view view
        cdef double *to
        cdef int status
        self._begin(list(own), runs, &given)
        runs._select(run_numbers, rows, &given.selection)
        _int32_view(positions, "positions", False, &view)
        given.positions = <const int32_t *>view.items
        _check_array(out, "out", _FLOAT, True)
        if view.count != given.selection.count or len(out) != view.count:
            raise _error("positions, rows and out differ in length", "positions")
        to = <double *>_bytes_out(out)
        with nogil:
            status = sj_distances_fill(&given, to)
        if status < 0:
            raise _error("rows, run_numbers or positions point outside", "rows")
        return status == 0

    cdef int _begin(self, list own, RunColumns runs, sj_distances *given) except -1:
        """Write the steps and the columns of both sides, which are checked."""
        cdef int place
        given[0] = self._distances
        if len(own) != self._own_count or runs._columns.column_count != self._other_count:
            raise _error("there must be a column for each that a step names", "own")
        given.probe_count = len(own[0]) if own else _MAX_ROWS
        for place in range(len(own)):
            column = own[place]
            if not isinstance(column, np.ndarray) or column.dtype.kind not in "fi" or len(column) != given.probe_count:
                raise _error("a column is not a plain array of numbers, or is shorter than another", "own")
            _check_array(column, "own", column.dtype)
            given.own[place], given.own_bytes[place] = _bytes_address(column), column.dtype.itemsize
        given.runs = &runs._columns
        return self._check_types(own, runs)

    cdef int _check_types(self, own, RunColumns runs) except -1:
        """Refuse a column whose items are not what its steps say: of the runs only the size is known."""
        cdef int number, place
        cdef sj_step *step
        for number in range(self._distances.step_count):
            step = &self._distances.steps[number]
            place = step.left
            if step.op == SJ_STEP_OWN:
                if (own[place].dtype.kind == "f") != step.is_float or own[place].dtype.itemsize > 8:
                    raise _error("a column of the probes is of another type", "own")
                if step.is_float and own[place].dtype.itemsize < 4:
                    raise _error("a column of the probes is of another type", "own")
            elif step.op == SJ_STEP_OTHER:
                if runs._columns.item_bytes[place] > 8 or (step.is_float and runs._columns.item_bytes[place] < 4):
                    raise _error("a column of the runs is of another type", "runs")
        return 0
