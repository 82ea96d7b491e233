/* pattern.h — who talks to whom: pure rank arithmetic, apart from bytes and memory, so that every P can be
 * tested exhaustively. Ranks are 0..P-1 of one group; every function is LOCAL and pure. */
#ifndef WEFT_COMM_PATTERN_H
#define WEFT_COMM_PATTERN_H

#include "comm/comm.h"

/* Ring: blocks travel to next; at hop h a rank holds the block of (r - h) mod P. */
int weft_ring_next(int P, int r);
int weft_ring_prev(int P, int r);
int weft_ring_owner(int P, int r, int hop);

/* All-to-all in steps 1..P-1: in a step everybody sends to one rank and hears from one rank, and over
 * all steps every ordered pair meets once. */
int weft_pairwise_to(int P, int r, int step);
int weft_pairwise_from(int P, int r, int step);

/* Binomial tree over the ranks, any root. The parent of the root is -1; children are numbered from 0,
 * the one with the largest subtree first; -1 after the last. */
enum { WEFT_TREE_CHILDREN_MAX = 31 };
int weft_tree_parent(int P, int r, int root);
int weft_tree_child(int P, int r, int root, int i);

/* Dissemination barrier (Hensgen, Finkel and Manber, 1988): in round k everybody signals r + 2^k and
 * hears from r - 2^k; after ceil(log2 P) rounds everybody has heard, directly or not, from all. */
int weft_dissemination_rounds(int P);
int weft_dissemination_to(int P, int r, int round);
int weft_dissemination_from(int P, int r, int round);

#endif
