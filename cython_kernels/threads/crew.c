#if defined(__linux__)
#define _GNU_SOURCE /* affinity */
#include <sched.h>
#endif

#include "threads/crew.h"

#include <stdlib.h>

#if defined(_WIN32)

/* Without POSIX threads the caller does everything itself. */
struct sj_crew {
    int unused;
};

sj_crew *sj_crew_new(int helpers, const int *cores, int core_count)
{
    (void)helpers, (void)cores, (void)core_count;
    return calloc(1, sizeof(sj_crew));
}

void sj_crew_add(sj_crew *crew, sj_task *task)
{
    (void)crew;
    task->is_done = 0;
}

void sj_crew_wait(sj_crew *crew, sj_task *task)
{
    (void)crew;
    if (!task->is_done) {
        task->work(task->of);
        task->is_done = 1;
    }
}

int sj_crew_helpers(const sj_crew *crew)
{
    (void)crew;
    return 0;
}

void sj_crew_end(sj_crew *crew)
{
    free(crew);
}

#else

#include <pthread.h>
#include <signal.h>
#include <time.h>

/* Nanoseconds for which a thread without work stays awake: Python takes less between two tasks of a push. */
#define AWAKE_NS 500000
#define LOOKS 64 /* looks for work between two looks at the clock */

typedef struct {
    sj_crew *crew;
    pthread_t thread;
} helper;

struct sj_crew {
    pthread_mutex_t lock;
    pthread_cond_t added;
    pthread_cond_t done;
    sj_task *first; /* of the tasks that nobody has begun; the lock guards this and what follows */
    sj_task *last;
    int64_t waiting; /* how many tasks nobody has begun; also read without the lock */
    int at_work;     /* how many tasks are being done */
    int asleep;      /* how many helpers must be woken */
    int is_ending;
    sj_crew *older; /* the next older crew of this process; under crews_lock */
    int helper_count;
    helper helpers[];
};

/* All crews, newest first: a fork needs them. A thread that takes this lock and that of a crew takes this one first. */
static pthread_mutex_t crews_lock = PTHREAD_MUTEX_INITIALIZER;
static sj_crew *crews;
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
static void do_one(sj_crew *crew)
{
    sj_task *task = crew->first;
    crew->first = task->next;
    __atomic_store_n(&crew->waiting, crew->waiting - 1, __ATOMIC_RELEASE);
    crew->at_work++;
    pthread_mutex_unlock(&crew->lock);
    task->work(task->of);
    pthread_mutex_lock(&crew->lock);
    crew->at_work--;
    __atomic_store_n(&task->is_done, 1, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&crew->done);
}

static void *help(void *told)
{
    sj_crew *crew = ((helper *)told)->crew;
    pthread_mutex_lock(&crew->lock);
    while (!crew->is_ending) {
        while (crew->first) {
            do_one(crew);
        }
        pthread_mutex_unlock(&crew->lock);
        stay_awake(&crew->waiting, &crew->waiting);
        pthread_mutex_lock(&crew->lock);
        while (!crew->first && !crew->is_ending) {
            crew->asleep++;
            pthread_cond_wait(&crew->added, &crew->lock);
            crew->asleep--;
        }
    }
    pthread_mutex_unlock(&crew->lock);
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
    pthread_mutex_lock(&crews_lock);
    for (sj_crew *crew = crews; crew; crew = crew->older) {
        pthread_mutex_lock(&crew->lock);
        while (crew->at_work) {
            pthread_cond_wait(&crew->done, &crew->lock);
        }
    }
}

static void after_fork_here(void)
{
    for (sj_crew *crew = crews; crew; crew = crew->older) {
        pthread_mutex_unlock(&crew->lock);
    }
    pthread_mutex_unlock(&crews_lock);
}

/* The new process has no helpers. A task that nobody had begun is done by the thread that waits for it. */
static void after_fork_there(void)
{
    for (sj_crew *crew = crews; crew; crew = crew->older) {
        pthread_mutex_init(&crew->lock, NULL);
        pthread_cond_init(&crew->added, NULL);
        pthread_cond_init(&crew->done, NULL);
        crew->asleep = crew->helper_count = 0;
    }
    pthread_mutex_init(&crews_lock, NULL);
}

static void tell_forks(void)
{
    pthread_atfork(before_fork, after_fork_here, after_fork_there);
}

sj_crew *sj_crew_new(int helpers, const int *cores, int core_count)
{
    pthread_once(&forks_are_told, tell_forks);
    sj_crew *crew = calloc(1, sizeof(sj_crew) + (size_t)helpers * sizeof(helper));
    if (!crew) {
        return NULL;
    }
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->added, NULL);
    pthread_cond_init(&crew->done, NULL);
    sigset_t all, before; /* the helpers block all signals: the caller may be waiting for one */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&crews_lock);
    for (int n = 0; n < helpers; n++) {
        helper *one = &crew->helpers[n];
        one->crew = crew;
        if (pthread_create(&one->thread, NULL, help, one)) {
            break;
        }
        crew->helper_count++;
        if (core_count) {
            pin(one->thread, cores[n % core_count]);
        }
    }
    crew->older = crews;
    crews = crew;
    pthread_mutex_unlock(&crews_lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return crew;
}

int sj_crew_helpers(const sj_crew *crew)
{
    return crew->helper_count;
}

void sj_crew_add(sj_crew *crew, sj_task *task)
{
    task->next = NULL;
    task->is_done = 0;
    pthread_mutex_lock(&crew->lock);
    if (crew->first) {
        crew->last->next = task;
    } else {
        crew->first = task;
    }
    crew->last = task;
    __atomic_store_n(&crew->waiting, crew->waiting + 1, __ATOMIC_RELEASE);
    if (crew->asleep) {
        pthread_cond_signal(&crew->added);
    }
    pthread_mutex_unlock(&crew->lock);
}

void sj_crew_wait(sj_crew *crew, sj_task *task)
{
    pthread_mutex_lock(&crew->lock);
    while (!task->is_done) {
        if (crew->first) {
            do_one(crew);
            continue;
        }
        pthread_mutex_unlock(&crew->lock);
        stay_awake(&task->is_done, &crew->waiting);
        pthread_mutex_lock(&crew->lock);
        while (!task->is_done && !crew->first) {
            pthread_cond_wait(&crew->done, &crew->lock);
        }
    }
    pthread_mutex_unlock(&crew->lock);
}

void sj_crew_end(sj_crew *crew)
{
    pthread_mutex_lock(&crews_lock);
    for (sj_crew **place = &crews; *place; place = &(*place)->older) {
        if (*place == crew) {
            *place = crew->older;
            break;
        }
    }
    pthread_mutex_unlock(&crews_lock);
    pthread_mutex_lock(&crew->lock);
    crew->is_ending = 1;
    pthread_cond_broadcast(&crew->added);
    pthread_mutex_unlock(&crew->lock);
    for (int n = 0; n < crew->helper_count; n++) {
        pthread_join(crew->helpers[n].thread, NULL);
    }
    free(crew); /* in a forked process too: the threads, and whatever they held, are the parent's */
}

#endif
