/* labels: small tsan */
/* What a run prints of its plan after a step (weft_trainer_check), on a few layouts: bytes exact, memory within 3 %. */
#include "checked.h"

static void plans_are_what_steps_come_to(void **state)
{
    enum { FEW = 5 };
    (void)state;
    for (int i = 0; i < FEW; i += test_every(FEW)) check_layout(layouts[i], i == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plans_are_what_steps_come_to)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
