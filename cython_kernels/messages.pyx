# cython: language_level=3, cdivision=True, embedsignature=True
"""Messages of Kafka in C: a consumer of one partition, and the frames of JSON messages.

The readable twins (streamjoin_ds.source.kafka: message_sources, formats.message_formats) document semantics. This file
checks arguments, takes addresses and releases the GIL.
"""
import numpy as np

from streamjoin_ds.errors import KernelError

from libc.stdint cimport int8_t, int32_t, int64_t
from libc.stdlib cimport calloc, free


cdef extern from "kafka/consumer.h" nogil:
    enum: SJ_CONSUMER_ERRORS
    enum: SJ_REASON_BYTES

    ctypedef struct sj_byte_values:
        int32_t *ends
        unsigned char *valid
        unsigned char *data
        int64_t capacity
        int64_t nulls

    ctypedef struct sj_messages:
        int64_t rows
        int64_t count
        int64_t *offsets
        int64_t *times_us
        unsigned char *times_valid
        int64_t times_nulls
        int8_t *time_types
        int32_t epoch
        int columns
        sj_byte_values *values
        const char *const *headers
        int short_column
        int64_t short_bytes

    ctypedef struct sj_consumer:
        pass

    const char *sj_consumer_load(const char *library)
    sj_consumer *sj_consumer_open(const char *const *names, const char *const *values, int settings,
                                  const char *topic, int32_t partition, char *reason)
    int sj_consumer_seek(sj_consumer *consumer, int64_t offset, int32_t epoch)
    int sj_consumer_fetch(sj_consumer *consumer, int64_t end, int wait_ms, sj_messages *to, int64_t *position)
    int sj_consumer_errors(const sj_consumer *consumer, int *errors)
    const char *sj_consumer_error_name(int error)
    void sj_consumer_close(sj_consumer *consumer)


cdef extern from "kafka/frames.h" nogil:
    int64_t sj_frame_objects(const unsigned char *data, const int32_t *ends, int64_t count, unsigned char *to,
                             int8_t *found)


# The arrays of one fetch; each is given to Arrow as it is.
cdef class Messages:
    """Room for messages: so many, and so many bytes of each of their byte columns (key, value, then the headers)."""

    cdef readonly object offsets, times_us, times_valid, time_types
    cdef readonly list ends, valid, data
    cdef sj_messages _to
    cdef sj_byte_values *_values

    def __cinit__(self, int64_t rows, capacities):
        cdef int64_t[::1] int64s
        cdef int32_t[::1] int32s
        cdef int8_t[::1] int8s
        cdef unsigned char[::1] bytes_
        cdef int column
        if rows < 1 or len(capacities) < 2:
            raise KernelError("there must be room for a message", name="rows")
        self._values = <sj_byte_values *>calloc(len(capacities), sizeof(sj_byte_values))
        if self._values == NULL:
            raise MemoryError
        self._to.rows, self._to.columns, self._to.values = rows, len(capacities), self._values
        bitmap_bytes = (rows + 7) // 8
        self.offsets = np.empty(rows, np.int64)
        int64s = self.offsets
        self._to.offsets = &int64s[0]
        self.times_us = np.empty(rows, np.int64)
        int64s = self.times_us
        self._to.times_us = &int64s[0]
        self.times_valid = np.zeros(bitmap_bytes, np.uint8)
        bytes_ = self.times_valid
        self._to.times_valid = &bytes_[0]
        self.time_types = np.empty(rows, np.int8)
        int8s = self.time_types
        self._to.time_types = &int8s[0]
        self.ends, self.valid, self.data = [], [], []
        for column, capacity in enumerate(capacities):
            if not 0 < capacity < 1 << 31:
                raise KernelError("a byte column must have room, and less than 2 GiB", name="capacities")
            self.ends.append(np.zeros(rows + 1, np.int32))
            int32s = self.ends[column]
            self._values[column].ends = &int32s[0]
            self.valid.append(np.zeros(bitmap_bytes, np.uint8))
            bytes_ = self.valid[column]
            self._values[column].valid = &bytes_[0]
            self.data.append(np.empty(capacity, np.uint8))
            bytes_ = self.data[column]
            self._values[column].data = &bytes_[0]
            self._values[column].capacity = capacity

    def __dealloc__(self):
        free(self._values)

    @property
    def count(self):
        """How many messages there are."""
        return self._to.count

    @property
    def epoch(self):
        """The leader epoch of all of them; -1 where it is not known."""
        return self._to.epoch

    @property
    def times_nulls(self):
        """How many of them have no time."""
        return self._to.times_nulls

    @property
    def short(self):
        """The column whose room is too small for the next message, and how many bytes it needs; None if it fits."""
        return None if self._to.short_column < 0 else (self._to.short_column, self._to.short_bytes)

    def nulls(self, int column):
        """Return how many messages have no such bytes."""
        if not 0 <= column < self._to.columns:
            raise KernelError("there is no such column", name="column")
        return self._values[column].nulls


def load_librdkafka(library):
    """Find librdkafka's functions in a library; return the name of what is missing, or None."""
    cdef bytes path = library.encode()
    cdef const char *missing = sj_consumer_load(path)
    return None if missing == NULL else missing.decode()


cdef class Consumer:
    """A consumer of one partition; see streamjoin_ds.source.kafka.message_sources. `load_librdkafka` comes first.

    A `ValueError` holds librdkafka's text, in which the value of a setting may stand.
    """

    cdef sj_consumer *_consumer
    cdef list _headers
    cdef const char **_header_names

    def __cinit__(self, dict settings, topic, int32_t partition, headers=()):
        cdef char reason[SJ_REASON_BYTES]
        cdef int at
        cdef bytes topic_name = topic.encode()
        cdef list texts = [(name.encode(), value.encode()) for name, value in settings.items()]
        cdef int count = len(texts)
        self._headers = [name.encode() for name in headers]
        self._header_names = <const char **>calloc(len(self._headers) + 1, sizeof(char *))
        cdef const char **names = <const char **>calloc(count + 1, sizeof(char *))
        cdef const char **values = <const char **>calloc(count + 1, sizeof(char *))
        try:
            if names == NULL or values == NULL or self._header_names == NULL:
                raise MemoryError
            for at in range(count):
                names[at], values[at] = <const char *>(<tuple>texts[at])[0], <const char *>(<tuple>texts[at])[1]
            for at in range(len(self._headers)):
                self._header_names[at] = <const char *>(<bytes>self._headers[at])
            self._consumer = sj_consumer_open(names, values, count, topic_name, partition, reason)
        finally:
            free(names)
            free(values)
        if self._consumer == NULL:
            raise ValueError(reason.decode("utf-8", "replace"))

    def __dealloc__(self):
        self._close()
        free(self._header_names)

    cdef void _close(self):
        cdef sj_consumer *consumer = self._consumer
        self._consumer = NULL
        if consumer != NULL:
            with nogil:
                sj_consumer_close(consumer)

    cdef sj_consumer *_open(self) except NULL:
        if self._consumer == NULL:
            raise KernelError("the consumer is closed", name="consumer")
        return self._consumer

    def close(self):
        """Leave the brokers."""
        self._close()

    def seek(self, int64_t offset, int32_t epoch=-1):
        """Go to an offset, before which the last message has this leader epoch; -1 where that is not known.

        Returns the name of librdkafka's error, or an empty text.
        """
        cdef sj_consumer *consumer = self._open()
        cdef int error
        with nogil:
            error = sj_consumer_seek(consumer, offset, epoch)
        return sj_consumer_error_name(error).decode() if error else ""

    def fetch(self, int64_t end, int wait_ms, Messages to):
        """Add messages before `end` to `to`; return the position and the name of an error, or an empty text."""
        cdef sj_consumer *consumer = self._open()
        cdef int64_t position = -1
        cdef int error
        if to._to.columns != 2 + len(self._headers):
            raise KernelError("there must be a column for the key, the value and each header", name="capacities")
        to._to.headers = self._header_names
        with nogil:
            error = sj_consumer_fetch(consumer, end, wait_ms, &to._to, &position)
        return position, sj_consumer_error_name(error).decode() if error else ""

    def errors(self):
        """Return the names of the errors that were told beside the messages."""
        cdef int errors[SJ_CONSUMER_ERRORS]
        cdef int count = sj_consumer_errors(self._open(), errors)
        return [sj_consumer_error_name(errors[at]).decode() for at in range(count)]


def frame_objects(const unsigned char[::1] data, const int32_t[::1] ends):
    """Return framed messages, a line each, and what each message is; see `message_formats`."""
    cdef int64_t count = len(ends) - 1, at, size
    if count < 0 or (count and (ends[0] < 0 or ends[count] > len(data))):
        raise KernelError("the ends do not lie within the data", name="ends")
    for at in range(count):
        if ends[at] > ends[at + 1]:
            raise KernelError("the ends do not ascend", name="ends")
    found_array = np.empty(count, np.int8)
    lines_array = np.empty((ends[count] - ends[0] if count else 0) + count, np.uint8)
    if not count:
        return lines_array, found_array
    cdef unsigned char[::1] lines = lines_array
    cdef int8_t[::1] found = found_array
    cdef const unsigned char *begin = &data[0] if len(data) else NULL
    with nogil:
        size = sj_frame_objects(begin, &ends[0], count, &lines[0], &found[0])
    return lines_array[:size], found_array
