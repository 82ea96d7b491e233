/* dcp_layer.c — an attention layer with its projections, cut by `dcp` over U x R ranks: the U ranks of a head group
 * trade tokens for heads (an all-to-all), and each gathers the keys and values of its own heads only.
 *
 *   mpirun -n 4 dcp_layer [U]
 *
 * U is the largest useful divisor of the number of ranks when it is not given. Exit code 0 when the layer equals that
 * of one rank, forward and backward; 1 when not. The layer is in layer.h. */
#include "layer.h"

int main(int argc, char **argv) { return layer_main(argc, argv, "dcp", argc > 1 ? atoi(argv[1]) : 0); }
