/* pcp_layer.c — an attention layer with its projections, cut over the ranks by `pcp`: each rank gathers all keys and
 * values, and the gradients of each token's key and value are summed on the rank that holds it.
 *
 *   mpirun -n 3 pcp_layer
 *
 * Exit code 0 when the layer equals that of one rank, forward and backward; 1 when not. The layer is in layer.h. */
#include "layer.h"

int main(int argc, char **argv) { return layer_main(argc, argv, "pcp", 0); }
