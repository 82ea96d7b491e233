/* simd_tasks.inl — who computes what: tasks (run of pairs, key/value head, tile) are handed out in ascending order.
 * Pairs of a backward share no rows: each is a run of its own. Finding the next task costs O(1), so ten thousand short
 * documents are no burden. */

typedef struct slot { /* what a thread is working on; one cache line */
    _Atomic int64_t task; /* number of its task, -1 for none */
    _Atomic int64_t done; /* that task has added to all query tiles below this one */
    char pad[48];
} slot;

typedef struct tasks {
    atomic_flag lock;
    int threads;
    int64_t next;            /* number of the next task */
    int64_t pair, tile;      /* where the search for it goes on */
    int64_t pairs;           /* of the run that begins at `pair`; 0: not looked at yet */
    int g;
    slot *slots;
} tasks;

typedef struct task {
    const weft_attn_pair *p;
    int64_t pairs;           /* of the run, which begins at p */
    group gr;
    int64_t id, tile, tiles; /* number; tile of the run and head, and how many these have */
    const slot *before;      /* the thread at the previous tile of the same pair and head, when still at it */
} task;

/* Tiles of a run of pairs, by its first, for one head: the two directions cut differently. */
typedef int64_t (*tiles_fn)(const weft_attn_desc *d, const weft_attn_pair *p, const group *gr, int threads);

static void tasks_init(tasks *q, slot *slots, int threads)
{
    atomic_flag_clear(&q->lock);
    q->threads = threads;
    q->next = q->pair = q->pairs = q->tile = q->g = 0;
    q->slots = slots;
    for (int i = 0; i < threads; i++) {
        atomic_init(&slots[i].task, -1);
        atomic_init(&slots[i].done, 0);
    }
}

/* Lets the other side run when there are more threads than cores; the calling thread keeps messages moving. */
static inline void pause_turn(int turn, const weft_attn_run *run, int me)
{
    if (turn < 64) {
        _mm_pause();
        return;
    }
    if (me == 0 && run->poll) run->poll(run->poll_ud);
    sched_yield();
}

static bool find_next(tasks *q, task *t, const weft_attn_desc *d, const weft_attn_pair *pairs, int64_t n,
                      tiles_fn tiles)
{
    for (; q->pair < n; q->pair += q->pairs, q->pairs = q->g = 0) {
        if (q->pairs == 0) q->pairs = weft_attn_run_of(&pairs[q->pair], n - q->pair);
        for (; q->g < d->Hkv; q->g++, q->tile = 0) {
            t->p = &pairs[q->pair];
            t->pairs = q->pairs;
            t->gr = group_of(d, q->g);
            t->tiles = tiles(d, t->p, &t->gr, q->threads);
            if (q->tile >= t->tiles) continue;
            t->tile = q->tile++;
            t->id = q->next++;
            return true;
        }
    }
    return false;
}

static bool take(tasks *q, task *t, const weft_attn_desc *d, const weft_attn_pair *pairs, int64_t n, tiles_fn tiles,
                 const weft_attn_run *run, int me)
{
    for (int turn = 0; atomic_flag_test_and_set_explicit(&q->lock, memory_order_acquire); turn++)
        pause_turn(turn, run, me);
    bool found = find_next(q, t, d, pairs, n, tiles);
    atomic_store_explicit(&q->slots[me].done, 0, memory_order_release);
    atomic_store_explicit(&q->slots[me].task, found ? t->id : -1, memory_order_release);
    t->before = NULL;
    for (int i = 0; found && t->tile > 0 && i < q->threads; i++)
        if (atomic_load_explicit(&q->slots[i].task, memory_order_acquire) == t->id - 1) t->before = &q->slots[i];
    atomic_flag_clear_explicit(&q->lock, memory_order_release);
    return found;
}

/* Until the task before t is done with query tile `tile` (a thread that has gone on to another task is). */
static void wait_before(const task *t, int64_t tile, const weft_attn_run *run, int me)
{
    if (!t->before) return;
    for (int turn = 0; atomic_load_explicit(&t->before->task, memory_order_acquire) == t->id - 1 &&
                       atomic_load_explicit(&t->before->done, memory_order_acquire) <= tile; turn++)
        pause_turn(turn, run, me);
}

/* ---- cutting ------------------------------------------------------------------------------------------------- */

/* Tiles of queries in a task of the forward: as many as share packed keys, but every thread should get some tasks. */
static int64_t forward_tiles_per_task(const weft_attn_desc *d, const weft_attn_pair *p, const group *gr, int threads,
                                      int64_t most)
{
    const int64_t share = tiles_of(p, gr) * d->Hkv / (4 * (int64_t)threads);
    return threads == 1 ? most : weft_max_i64(1, weft_min_i64(most, share));
}

/* The query tiles [*lo, *hi) that task `id` of a pair and head of the backward, with `keys` keys each, may touch; both
 * ends grow with `id`. */
static void touched(const weft_attn_desc *d, const weft_attn_pair *p, const group *gr, int64_t keys, int64_t id,
                    int64_t *lo, int64_t *hi)
{
    const int64_t j0 = id * keys;
    weft_attn_query_range(&d->mask, p, j0, weft_min_i64(p->nk, j0 + keys), lo, hi);
    *lo = *lo * gr->heads / LANES;
    *hi = weft_ceil_div(*hi * gr->heads, LANES);
}

/* ---- work memory: the task list, a slot per thread, then each thread's buffers ---------------------------------- */

enum { WORK_HEAD = 128 };
_Static_assert(sizeof(tasks) <= WORK_HEAD && sizeof(slot) == 64, "work memory layout");

static size_t work_size(int threads, size_t thread_bytes)
{
    return WORK_HEAD + (size_t)threads * (sizeof(slot) + thread_bytes);
}

static tasks *work_tasks(const weft_attn_run *run)
{
    tasks *q = run->work;
    tasks_init(q, (slot *)(void *)((char *)run->work + WORK_HEAD), run->threads);
    return q;
}

static char *work_of_thread(const weft_attn_run *run, size_t thread_bytes, int me)
{
    return (char *)run->work + WORK_HEAD + (size_t)run->threads * sizeof(slot) + (size_t)me * thread_bytes;
}

/* ---- a call of forward or backward --------------------------------------------------------------------------- */

typedef struct call {
    weft_prec c;    /* of the operands */
    const weft_attn_desc *d;
    const void *io; /* weft_attn_fwd_io or weft_attn_bwd_io */
    const weft_attn_run *run;
    dropout drop;   /* found before denormals are flushed: the probability may be one */
} call;

/* Does task t as thread `me`, whose slot is `mine`. */
typedef void (*work_fn)(const call *x, const task *t, slot *mine, int me);

/* Every thread takes tasks until there are none. */
static void run_tasks(const call *x, const weft_attn_pair *pairs, int64_t n, tiles_fn tiles, work_fn work)
{
    tasks *q = work_tasks(x->run);
#pragma omp parallel num_threads(x->run->threads)
    {
        const simd_mode mode = simd_enter();
        const int me = weft_attn_thread();
        task t;
        while (take(q, &t, x->d, pairs, n, tiles, x->run, me)) work(x, &t, &q->slots[me], me);
        simd_leave(mode);
    }
}
