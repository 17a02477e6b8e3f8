/* Frames of messages: which of them are exactly one JSON object, each as one line.
 *
 * A reader of JSON lines merges a broken message with its neighbour, and makes two records of {..}{..}. A message that
 * passes here begins with a brace that its last byte closes, so a reader either makes one record of it or fails.
 * Semantics: streamjoin_ds.source.kafka.formats.message_formats, the readable twin.
 */
#ifndef SJ_FRAMES_H
#define SJ_FRAMES_H

#include <stdint.h>

enum { SJ_FRAMED, SJ_FRAME_EMPTY, SJ_FRAME_NO_OBJECT, SJ_FRAME_OPEN, SJ_FRAME_MORE, SJ_FRAME_CONTROL };

/* Copies the messages that are framed, each with a newline behind it; line ends between values become blanks.
 * Message i lies at [ends[i], ends[i + 1]) of `data`. `to` has room for all of it and a byte a message.
 * Writes what each message is into `found`. Returns how many bytes were written. */
int64_t sj_frame_objects(const unsigned char *data, const int32_t *ends, int64_t count, unsigned char *to,
                         int8_t *found);

#endif
