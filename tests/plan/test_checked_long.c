/* labels: long */
/* timeout: 600 */
/* What a run prints of its plan after a step (weft_trainer_check), on twenty layouts, on threads and in the simulated
 * world: bytes exact on every rank, memory within 3 % of the counted peak. */
#include "checked.h"

static void plans_are_what_steps_come_to(void **state)
{
    (void)state;
    for (int i = 0; i < LAYOUTS; i++) check_layout(layouts[i], true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plans_are_what_steps_come_to)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
