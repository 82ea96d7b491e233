/* exchange_rates.c — exchanges that `weft bench profile` and `weft bench comm` time. */
#include "cli/profile_rates.h"

enum { PINGS = 200, TAG_PING = 1, TAG_DATA = 2 };

weft_status weft_rates_latency(weft_rates *b, double *seconds)
{
    int rank = weft_comm_rank(b->comm);
    char message[8] = {0};
    weft_series took = {0};
    for (int i = 0; i < b->repeats && rank < 2; i++) {
        double begin = weft_rates_now(b);
        for (int n = 0; n < PINGS; n++)
            for (int turn = 0; turn < 2; turn++) {
                weft_req req;
                if (turn == rank)
                    WEFT_TRY(weft_isend(b->comm, message, sizeof message, 1 - rank, TAG_PING, WEFT_MEM_HOST, NULL,
                                        &req));
                else
                    WEFT_TRY(weft_irecv(b->comm, message, sizeof message, 1 - rank, TAG_PING, WEFT_MEM_HOST, NULL,
                                        &req));
                WEFT_TRY(weft_wait(&req));
            }
        weft_rates_took(&took, (weft_rates_now(b) - begin) / (2 * PINGS));
    }
    *seconds = weft_rates_median(&took);
    return weft_broadcast(b->comm, seconds, sizeof *seconds, 0);
}

weft_status weft_rates_start(weft_rates *b, int peers, size_t bytes, const char *from, char *to, weft_req *req)
{
    int P = weft_comm_size(b->comm), rank = weft_comm_rank(b->comm);
    for (int k = 1; k <= peers; k++)
        WEFT_TRY(weft_irecv(b->comm, to + (size_t)(k - 1) * bytes, bytes, (rank - k + P) % P, TAG_DATA, WEFT_MEM_HOST,
                            NULL, &req[k - 1]));
    for (int k = 1; k <= peers; k++)
        WEFT_TRY(weft_isend(b->comm, from, bytes, (rank + k) % P, TAG_DATA, WEFT_MEM_HOST, NULL,
                            &req[peers + k - 1]));
    return WEFT_OK;
}

weft_status weft_rates_exchange(weft_rates *b, int peers, size_t bytes, const char *from, char *to, weft_req *req)
{
    WEFT_TRY(weft_rates_start(b, peers, bytes, from, to, req));
    return weft_wait_all(req, 2 * peers);
}

weft_status weft_rates_pieces(weft_rates *b, size_t bytes, size_t piece, const char *from, char *to, weft_req *req)
{
    int P = weft_comm_size(b->comm), rank = weft_comm_rank(b->comm), n = 0;
    for (size_t at = 0; at < bytes; at += piece)
        WEFT_TRY(weft_irecv(b->comm, to + at, weft_min_size(piece, bytes - at), (rank - 1 + P) % P, TAG_DATA,
                            WEFT_MEM_HOST, NULL, &req[n++]));
    for (size_t at = 0; at < bytes; at += piece)
        WEFT_TRY(weft_isend(b->comm, from + at, weft_min_size(piece, bytes - at), (rank + 1) % P, TAG_DATA,
                            WEFT_MEM_HOST, NULL, &req[n++]));
    return weft_wait_all(req, n);
}
