/* Threads that wait in C for tasks, so that none of them ever needs the GIL.
 *
 *   caller   add(a) add(b) ─ Python ─ wait(a) ── b ──► Python ─ add(c) ─ wait(b) ...
 *   helper        └──► a ──────────────────► nothing: awake for a moment, then asleep
 *
 * Free threads begin the tasks in the order in which they were added. A caller that waits for a task does other tasks
 * meanwhile. To hand work to a Python thread would cost a wake-up and two changes of the GIL's owner: more time than to
 * sort a batch.
 */
#ifndef SJ_THREAD_POOL_H
#define SJ_THREAD_POOL_H

#include <stdint.h>

typedef struct sj_task sj_task;
struct sj_task {
    void (*work)(void *of);
    void *of;
    sj_task *next; /* this and what follows belong to the pool */
    int64_t is_done;
};

typedef struct sj_pool sj_pool;

/* Makes a pool of so many helpers besides the caller. Each is pinned to one of the cores, in turn; core_count 0: they
 * run wherever the system puts them. There are fewer helpers if the system gives no more threads. NULL: no memory. */
sj_pool *sj_pool_new(int helpers, const int *cores, int core_count);

/* Adds a task, which must stay in its place in memory until somebody has waited for it. In a process that was forked
 * meanwhile, there are no helpers, and each earlier task is either done or not begun. */
void sj_pool_add(sj_pool *pool, sj_task *task);

/* Returns when the task is done; until then the caller does tasks too. */
void sj_pool_wait(sj_pool *pool, sj_task *task);

/* Returns how many helpers there are in this process. */
int sj_pool_helpers(const sj_pool *pool);

/* Ends the helpers and frees the pool. All tasks must have been waited for. */
void sj_pool_end(sj_pool *pool);

#endif
