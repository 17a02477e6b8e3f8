# Pairs of places that are near each other; semantics: streamjoin_ds.engine.kernels.twins.nearest.

cdef extern from "globe/near_places.h" nogil:
    ctypedef struct sj_near_places:
        sj_near_bounds bounds
        sj_near_fill fill
        const sj_run_columns *left
        const sj_run_columns *right
        sj_selection left_rows
        sj_selection right_rows

    int sj_near_places_fill(const sj_near_places *places, uint8_t *out)


cdef class NearPlaces:
    """A decision on pairs of places; see streamjoin_ds.engine.kernels.twins.nearest.NearPlaces."""

    cdef sj_near_places _places

    def __init__(self, bounds, implementation=None):
        bounds = tuple(bounds)
        if len(bounds) != 5:
            raise _error("there must be five bounds", "bounds")
        cdef sj_near_bounds *to = &self._places.bounds
        to.eccentricity, to.inverse, to.low, to.high, to.most_latitude = [_float_bound(of, "bounds") for of in bounds]
        self._places.fill = _implementation(implementation).near_fill

    def decide(self, left, left_runs, left_rows, right, right_runs, right_rows, out):
        """Write for each pair 0 where it is far, 1 where it is near, and 2 where only its distance tells."""
        cdef RunColumns from_left = _places(left, "left"), from_right = _places(right, "right")
        cdef sj_near_places given = self._places
        cdef uint8_t *to
        cdef int status
        given.left, given.right = &from_left._columns, &from_right._columns
        from_left._select(left_runs, left_rows, &given.left_rows)
        from_right._select(right_runs, right_rows, &given.right_rows)
        _check_array(out, "out", _BYTES, True)
        if not given.left_rows.count == given.right_rows.count == len(out):
            raise _error("left_rows, right_rows and out differ in length", "out")
        to = <uint8_t *>_bytes_out(out)
        with nogil:
            status = sj_near_places_fill(&given, to)
        if status < 0:
            raise _error("rows or run numbers point outside", "left_rows")


cdef RunColumns _places(columns, name):
    """Return columns that are latitudes and longitudes."""
    if not isinstance(columns, RunColumns):
        raise _error(f"{name} was made by another kernel module", name)
    cdef RunColumns found = columns
    if found._columns.column_count != 2 or any(column.dtype != _FLOAT for column in found._kept[0]):
        raise _error(f"{name} must have two columns of float64", name)
    return found
