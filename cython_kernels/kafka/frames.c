#include "kafka/frames.h"

#include <string.h>

static int is_blank(unsigned char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

/* What every byte means outside of texts: nothing, or one of these. */
enum { PLAIN, OPENS, CLOSES, QUOTES, ENDS_LINE };

static const unsigned char meaning[256] = {
    ['{'] = OPENS, ['['] = OPENS, ['}'] = CLOSES, [']'] = CLOSES, ['"'] = QUOTES, ['\n'] = ENDS_LINE, ['\r'] = ENDS_LINE,
};

/* Copies one message and says what it is; `written` is set where it is framed. */
static int frame(const unsigned char *at, const unsigned char *end, unsigned char *to, int64_t *written)
{
    unsigned char *const begin = to;
    int64_t depth = 0;
    while (at < end && is_blank(*at))
        at++;
    while (at < end && is_blank(end[-1]))
        end--;
    if (at == end)
        return SJ_FRAME_EMPTY;
    if (*at != '{')
        return SJ_FRAME_NO_OBJECT;
    while (at < end) {
        const unsigned char byte = *at++;
        *to++ = byte;
        switch (meaning[byte]) {
        case OPENS:
            depth++;
            break;
        case CLOSES:
            if (--depth == 0) {
                *written = to - begin;
                return at == end ? SJ_FRAMED : SJ_FRAME_MORE;
            }
            break;
        case ENDS_LINE:
            to[-1] = ' ';
            break;
        case QUOTES:
            for (;;) {
                if (at == end)
                    return SJ_FRAME_OPEN;
                const unsigned char inner = *at++;
                *to++ = inner;
                if (inner == '"')
                    break;
                if (inner == '\n' || inner == '\r')
                    return SJ_FRAME_CONTROL;
                if (inner == '\\') {
                    if (at == end)
                        return SJ_FRAME_OPEN;
                    if (*at == '\n' || *at == '\r')
                        return SJ_FRAME_CONTROL;
                    *to++ = *at++;
                }
            }
            break;
        default:
            break;
        }
    }
    return SJ_FRAME_OPEN;
}

int64_t sj_frame_objects(const unsigned char *data, const int32_t *ends, int64_t count, unsigned char *to, int8_t *found)
{
    unsigned char *const begin = to;
    for (int64_t message = 0; message < count; message++) {
        int64_t written = 0;
        found[message] = (int8_t)frame(data + ends[message], data + ends[message + 1], to, &written);
        if (found[message] == SJ_FRAMED) {
            to += written;
            *to++ = '\n';
        }
    }
    return to - begin;
}
