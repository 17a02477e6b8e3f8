/* Threads that wait in C for pieces of work, so that none of them ever needs the GIL.
 *
 *   caller   add(a) add(b) ─ Python ─ wait(a) ── b ──► Python ─ add(c) ─ wait(b) ...
 *   helper        └──► a ──────────────────► nothing: awake for a moment, then asleep
 *
 * Tasks are begun in the order in which they were added, by whoever is free; who waits for one works meanwhile. To hand a
 * piece of work to a thread of Python's costs a wake-up and two changes of the GIL's owner, longer than sorting a batch.
 */
#ifndef SJ_CREW_H
#define SJ_CREW_H

#include <stdint.h>

typedef struct sj_task sj_task;
struct sj_task {
    void (*work)(void *of);
    void *of;
    sj_task *next; /* the crew's, as all that follows */
    int64_t is_done;
};

typedef struct sj_crew sj_crew;

/* So many helpers besides the caller, each on one of the cores, in turn; core_count 0: wherever the system puts them. There
 * may be fewer, where the system gives no more threads. NULL: no memory. */
sj_crew *sj_crew_new(int helpers, const int *cores, int core_count);

/* A task to be done, which stays where it is until somebody has waited for it. In a process that was forked since, there are
 * no helpers; each task of before is done there, or was not begun. */
void sj_crew_add(sj_crew *crew, sj_task *task);

/* Returns when the task is done; until then the caller does tasks too. */
void sj_crew_wait(sj_crew *crew, sj_task *task);

/* How many helpers there are, in this process. */
int sj_crew_helpers(const sj_crew *crew);

/* The helpers end. All tasks must have been waited for. */
void sj_crew_end(sj_crew *crew);

#endif
