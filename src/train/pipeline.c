/* pipeline.c — executes the list of operations of this rank's stage, blindly: what is posted, sent and waited for, and
 * when, is the schedule's to say. With one stage the list holds passes only, and nothing travels.
 *
 * Rows of the residual stream travel down, their gradients up, each in a ring of buffers: micro-batch m uses place
 * m mod n. The gradient of a stage's output becomes that of its input in the same place. */
#include "train/pipeline.h"

enum { TAG_OUTPUT, TAG_GRADIENT };

typedef struct ring { /* places for what travels; each is received into, or sent from, or both in turn */
    char *data;
    size_t place;        /* bytes of one */
    weft_req *recv, *send;
    int n;
} ring;

struct weft_pipeline {
    weft_engine *e;
    int stage, stages;
    size_t row_bytes;    /* of the residual stream */
    ring input, output, gradient;
    weft_sched_op *op;
    int64_t room;        /* operations that fit */
};

typedef struct work { /* one execution of a list */
    weft_pipeline *p;
    const weft_pipeline_job *job;
    int64_t micros;
    double nll;
    const weft_sched_op *op; /* that runs */
    double done;             /* work of the passes before it */
} work;

/* ---- creation --------------------------------------------------------------------------------------- */

static weft_status ring_alloc(weft_pipeline *p, ring *r, int n, const char *label)
{
    r->n = n;
    r->place = p->row_bytes * (size_t)weft_model_stream_rows(p->e->model, p->e->B);
    WEFT_TRY(weft_arena_alloc(p->e->arena, n, r->place, label, (void **)&r->data));
    WEFT_TRY(WEFT_NEW0(p->e->arena, n, label, &r->recv));
    return WEFT_NEW0(p->e->arena, n, label, &r->send);
}

static weft_status make_room(weft_pipeline *p, int64_t ops)
{
    if (ops <= p->room) return WEFT_OK;
    p->room = ops;
    return WEFT_NEW(p->e->arena, ops, "schedule", &p->op);
}

weft_status weft_pipeline_create(weft_pipeline **out, weft_engine *e, int64_t micros)
{
    weft_pipeline *p = NULL;
    WEFT_TRY(WEFT_NEW0(e->arena, 1, "schedule", &p));
    *p = (weft_pipeline){.e = e, .stage = e->mesh.at.pp, .stages = e->mesh.size.pp,
                         .row_bytes = (size_t)e->config.C * weft_dtype_size(weft_prec_real(e->run->prec))};
    WEFT_TRY(make_room(p, weft_sched_1f1b_ops(p->stages, p->stage, micros)));
    const int inputs = weft_sched_inputs(e->slots, weft_model_copies_input(e->model));
    if (p->stage > 0) WEFT_TRY(ring_alloc(p, &p->input, inputs, "stage input"));
    if (p->stage + 1 < p->stages) WEFT_TRY(ring_alloc(p, &p->output, WEFT_SCHED_OUTPUTS, "stage output"));
    if (p->stages > 1 && weft_model_gradients(e->model))
        WEFT_TRY(ring_alloc(p, &p->gradient, WEFT_SCHED_GRADIENTS, "stage gradient"));
    *out = p;
    return WEFT_OK;
}

/* ---- what travels ------------------------------------------------------------------------------------ */

static int64_t sequences_of(const weft_pipeline_job *j, int64_t micro)
{
    return weft_min_i64(j->B, j->sequences - micro * j->B);
}

/* A ring of none, at an end of the pipeline, has no place. */
static void *place_of(const ring *r, int64_t micro)
{
    if (r->n == 0) return NULL;
    return WEFT_PLANTED(stage_buffer_shared) ? r->data : r->data + r->place * (size_t)(micro % r->n);
}

static size_t bytes_of(const work *w, int64_t micro)
{
    return w->p->row_bytes * (size_t)weft_model_stream_rows(w->p->e->model, sequences_of(w->job, micro));
}

static weft_status post(work *w, ring *r, int64_t micro, int stage, int tag)
{
    return weft_irecv(w->p->e->mesh.pp, place_of(r, micro), bytes_of(w, micro), stage, tag, WEFT_MEM_HOST, NULL,
                      &r->recv[micro % r->n]);
}

static weft_status send(work *w, ring *r, int64_t micro, int stage, int tag)
{
    return weft_isend(w->p->e->mesh.pp, place_of(r, micro), bytes_of(w, micro), stage, tag, WEFT_MEM_HOST, NULL,
                      &r->send[micro % r->n]);
}

/* ---- passes ------------------------------------------------------------------------------------------ */

static void layer_begins(void *ud, int64_t layer, double done, double ahead)
{
    const work *w = ud;
    w->job->at(w->job->ud, w->op, layer, w->done + done, ahead);
}

static weft_engine_pass pass_of(work *w, const weft_sched_op *o)
{
    weft_pipeline *p = w->p;
    weft_model_watch watch = {w->job->at ? layer_begins : NULL, w};
    return (weft_engine_pass){.slot = o->slot, .input = place_of(&p->input, o->micro),
                              .output = place_of(&p->output, o->micro), .for_backward = w->job->backward,
                              .grad_scale = w->job->grad_scale, .token_nll = w->job->token_nll, .watch = watch};
}

static weft_status forward(work *w, const weft_sched_op *o)
{
    weft_batch batch;
    double nll = 0;
    weft_engine_pass pass = pass_of(w, o);
    WEFT_TRY(w->job->batch(w->job->ud, o->micro, &batch));
    pass.sequence = batch.sequence;
    WEFT_TRY(weft_engine_forward(w->p->e, &pass, batch.token, batch.target, &batch.docs, &nll));
    w->nll += nll;
    if (w->job->done) w->job->done(w->job->ud, o->micro, o->slot);
    return WEFT_OK;
}

static weft_status backward(work *w, const weft_sched_op *o)
{
    weft_engine_pass pass = pass_of(w, o);
    pass.stream = place_of(&w->p->gradient, o->micro);
    if (o->micro == w->micros - 1) pass.optim = w->job->optim;
    return weft_engine_backward(w->p->e, &pass);
}

/* ---- the list ---------------------------------------------------------------------------------------- */

static weft_status execute(work *w, const weft_sched_op *o)
{
    weft_pipeline *p = w->p;
    int64_t m = o->micro;
    int before = p->stage - 1, after = p->stage + 1;
    switch (o->kind) {
    case WEFT_OP_FORWARD: return forward(w, o);
    case WEFT_OP_BACKWARD: return backward(w, o);
    case WEFT_OP_POST_INPUT: return post(w, &p->input, m, before, TAG_OUTPUT);
    case WEFT_OP_WAIT_INPUT: return weft_wait(&p->input.recv[m % p->input.n]);
    case WEFT_OP_SEND_OUTPUT: return send(w, &p->output, m, after, TAG_OUTPUT);
    case WEFT_OP_WAIT_OUTPUT_SENT: return weft_wait(&p->output.send[m % p->output.n]);
    case WEFT_OP_POST_GRADIENT: return post(w, &p->gradient, m, after, TAG_GRADIENT);
    case WEFT_OP_WAIT_GRADIENT: return weft_wait(&p->gradient.recv[m % p->gradient.n]);
    case WEFT_OP_SEND_GRADIENT: return send(w, &p->gradient, m, before, TAG_GRADIENT);
    case WEFT_OP_WAIT_GRADIENT_SENT: return weft_wait(&p->gradient.send[m % p->gradient.n]);
    case WEFT_OP_KINDS: break;
    }
    return weft_fail(WEFT_ERR_INTERNAL, "pipeline: operation %d is none", (int)o->kind);
}

static weft_status make_list(work *w, int64_t *n)
{
    weft_pipeline *p = w->p;
    bool both = w->job->backward;
    *n = (both ? weft_sched_1f1b_ops : weft_sched_forward_ops)(p->stages, p->stage, w->micros);
    WEFT_TRY(make_room(p, *n));
    return (both ? weft_sched_1f1b : weft_sched_forward)(p->stages, p->stage, w->micros, p->op);
}

/* Other operations take no time, or wait for what was sent long ago. */
static bool waits_for_stage(const weft_sched_op *o)
{
    return o->kind == WEFT_OP_WAIT_INPUT || o->kind == WEFT_OP_WAIT_GRADIENT;
}

weft_status weft_pipeline_run(weft_pipeline *p, const weft_pipeline_job *job, double *nll)
{
    work w = {.p = p, .job = job, .micros = weft_ceil_div(job->sequences, job->B)};
    weft_mesh *mesh = &p->e->mesh;
    int64_t n;
    WEFT_TRY(make_list(&w, &n));
    for (int64_t i = 0; i < n; i++) {
        const weft_sched_op *o = &p->op[i];
        bool pass = o->kind == WEFT_OP_FORWARD || o->kind == WEFT_OP_BACKWARD;
        const double begin = weft_now(&p->e->ctx->clock);
        w.op = o;
        if (job->at && waits_for_stage(o)) job->at(job->ud, o, -1, w.done, 0);
        weft_place(mesh->world, weft_op_name(o->kind), -1, (int)o->micro);
        if (pass) WEFT_TRY(weft_comm_fault(mesh->pp, "pipeline", NULL));
        WEFT_TRY(execute(&w, o));
        if (pass)
            weft_trace_emit(&p->e->ctx->trace, WEFT_TRACK_COMPUTE, weft_op_name(o->kind), begin,
                            weft_now(&p->e->ctx->clock), -1, o->micro);
        if (pass) w.done += weft_model_pass_work(p->e->model, o->kind == WEFT_OP_BACKWARD);
    }
    weft_place(mesh->world, "after the pipeline", -1, -1);
    *nll = w.nll; /* only the last stage's is not 0, so the sum is exact */
    return weft_all_reduce(mesh->pp, nll, 1, WEFT_F64, WEFT_SUM);
}
