#if defined(__linux__)
#define _GNU_SOURCE /* affinity */
#include <sched.h>
#endif

#include "threads/thread_pool.h"

#include <stdlib.h>

#if defined(_WIN32)

/* Without POSIX threads the caller does everything itself. */
struct sj_pool {
    int unused;
};

sj_pool *sj_pool_new(int helpers, const int *cores, int core_count)
{
    (void)helpers, (void)cores, (void)core_count;
    return calloc(1, sizeof(sj_pool));
}

void sj_pool_add(sj_pool *pool, sj_task *task)
{
    (void)pool;
    task->is_done = 0;
}

void sj_pool_wait(sj_pool *pool, sj_task *task)
{
    (void)pool;
    if (!task->is_done) {
        task->work(task->of);
        task->is_done = 1;
    }
}

int sj_pool_helpers(const sj_pool *pool)
{
    (void)pool;
    return 0;
}

void sj_pool_end(sj_pool *pool)
{
    free(pool);
}

#else

#include <pthread.h>
#include <signal.h>
#include <time.h>

/* Nanoseconds for which a thread without work stays awake: Python takes less between two tasks of a push. */
#define AWAKE_NS 500000
#define LOOKS 64 /* looks for work between two looks at the clock */

typedef struct {
    sj_pool *pool;
    pthread_t thread;
} helper;

struct sj_pool {
    pthread_mutex_t lock;
    pthread_cond_t added;
    pthread_cond_t done;
    sj_task *first; /* of the tasks that nobody has begun; the lock guards this and what follows */
    sj_task *last;
    int64_t waiting; /* how many tasks nobody has begun; also read without the lock */
    int at_work;     /* how many tasks are being done */
    int asleep;      /* how many helpers must be woken */
    int is_ending;
    sj_pool *older; /* the next older pool of this process; under pools_lock */
    int helper_count;
    helper helpers[];
};

/* All pools, newest first: a fork needs them. A thread that takes this lock and that of a pool takes this one first. */
static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static sj_pool *pools;
static pthread_once_t forks_are_told = PTHREAD_ONCE_INIT;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Looks at two numbers until one of them is not zero, for AWAKE_NS at most. */
static void stay_awake(const int64_t *number, const int64_t *other)
{
    const int64_t until = now_ns() + AWAKE_NS;
    do {
        for (int look = 0; look < LOOKS; look++) {
            if (__atomic_load_n(number, __ATOMIC_ACQUIRE) || __atomic_load_n(other, __ATOMIC_ACQUIRE)) {
                return;
            }
            pause_cpu();
        }
    } while (now_ns() < until);
}

/* Does the first task that nobody has begun; the lock is held before and after. */
static void do_one(sj_pool *pool)
{
    sj_task *task = pool->first;
    pool->first = task->next;
    __atomic_store_n(&pool->waiting, pool->waiting - 1, __ATOMIC_RELEASE);
    pool->at_work++;
    pthread_mutex_unlock(&pool->lock);
    task->work(task->of);
    pthread_mutex_lock(&pool->lock);
    pool->at_work--;
    __atomic_store_n(&task->is_done, 1, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&pool->done);
}

static void *help(void *told)
{
    sj_pool *pool = ((helper *)told)->pool;
    pthread_mutex_lock(&pool->lock);
    while (!pool->is_ending) {
        while (pool->first) {
            do_one(pool);
        }
        pthread_mutex_unlock(&pool->lock);
        stay_awake(&pool->waiting, &pool->waiting);
        pthread_mutex_lock(&pool->lock);
        while (!pool->first && !pool->is_ending) {
            pool->asleep++;
            pthread_cond_wait(&pool->added, &pool->lock);
            pool->asleep--;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static void pin(pthread_t thread, int core)
{
#if defined(__linux__)
    if (core >= 0 && core < CPU_SETSIZE) {
        cpu_set_t cores;
        CPU_ZERO(&cores);
        CPU_SET(core, &cores);
        pthread_setaffinity_np(thread, sizeof cores, &cores); /* fails if the cpuset has changed: unpinned then */
    }
#else
    (void)thread, (void)core;
#endif
}

/* Waits until every task that was begun is done. The new process has no helpers: a task that is half done when the
 * process is forked would never be finished there. */
static void before_fork(void)
{
    pthread_mutex_lock(&pools_lock);
    for (sj_pool *pool = pools; pool; pool = pool->older) {
        pthread_mutex_lock(&pool->lock);
        while (pool->at_work) {
            pthread_cond_wait(&pool->done, &pool->lock);
        }
    }
}

static void after_fork_here(void)
{
    for (sj_pool *pool = pools; pool; pool = pool->older) {
        pthread_mutex_unlock(&pool->lock);
    }
    pthread_mutex_unlock(&pools_lock);
}

/* The new process has no helpers. A task that nobody had begun is done by the thread that waits for it. */
static void after_fork_there(void)
{
    for (sj_pool *pool = pools; pool; pool = pool->older) {
        pthread_mutex_init(&pool->lock, NULL);
        pthread_cond_init(&pool->added, NULL);
        pthread_cond_init(&pool->done, NULL);
        pool->asleep = pool->helper_count = 0;
    }
    pthread_mutex_init(&pools_lock, NULL);
}

static void tell_forks(void)
{
    pthread_atfork(before_fork, after_fork_here, after_fork_there);
}

sj_pool *sj_pool_new(int helpers, const int *cores, int core_count)
{
    pthread_once(&forks_are_told, tell_forks);
    sj_pool *pool = calloc(1, sizeof(sj_pool) + (size_t)helpers * sizeof(helper));
    if (!pool) {
        return NULL;
    }
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->added, NULL);
    pthread_cond_init(&pool->done, NULL);
    sigset_t all, before; /* the helpers block all signals: the caller may be waiting for one */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&pools_lock);
    for (int n = 0; n < helpers; n++) {
        helper *one = &pool->helpers[n];
        one->pool = pool;
        if (pthread_create(&one->thread, NULL, help, one)) {
            break;
        }
        pool->helper_count++;
        if (core_count) {
            pin(one->thread, cores[n % core_count]);
        }
    }
    pool->older = pools;
    pools = pool;
    pthread_mutex_unlock(&pools_lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pool;
}

int sj_pool_helpers(const sj_pool *pool)
{
    return pool->helper_count;
}

void sj_pool_add(sj_pool *pool, sj_task *task)
{
    task->next = NULL;
    task->is_done = 0;
    pthread_mutex_lock(&pool->lock);
    if (pool->first) {
        pool->last->next = task;
    } else {
        pool->first = task;
    }
    pool->last = task;
    __atomic_store_n(&pool->waiting, pool->waiting + 1, __ATOMIC_RELEASE);
    if (pool->asleep) {
        pthread_cond_signal(&pool->added);
    }
    pthread_mutex_unlock(&pool->lock);
}

void sj_pool_wait(sj_pool *pool, sj_task *task)
{
    pthread_mutex_lock(&pool->lock);
    while (!task->is_done) {
        if (pool->first) {
            do_one(pool);
            continue;
        }
        pthread_mutex_unlock(&pool->lock);
        stay_awake(&task->is_done, &pool->waiting);
        pthread_mutex_lock(&pool->lock);
        while (!task->is_done && !pool->first) {
            pthread_cond_wait(&pool->done, &pool->lock);
        }
    }
    pthread_mutex_unlock(&pool->lock);
}

void sj_pool_end(sj_pool *pool)
{
    pthread_mutex_lock(&pools_lock);
    for (sj_pool **place = &pools; *place; place = &(*place)->older) {
        if (*place == pool) {
            *place = pool->older;
            break;
        }
    }
    pthread_mutex_unlock(&pools_lock);
    pthread_mutex_lock(&pool->lock);
    pool->is_ending = 1;
    pthread_cond_broadcast(&pool->added);
    pthread_mutex_unlock(&pool->lock);
    for (int n = 0; n < pool->helper_count; n++) {
        pthread_join(pool->helpers[n].thread, NULL);
    }
    free(pool); /* in a forked process too: the threads, and whatever they held, are the parent's */
}

#endif
