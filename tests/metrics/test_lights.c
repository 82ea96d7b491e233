/* labels: small */
/* Lights stand at their limits: the limit itself is fine, or still to be looked at; what is no number is bad. */
#include "harness/test.h"
#include "metrics/metrics.h"

#include <math.h>

static void lights_stand_at_their_limits(void **state)
{
    (void)state;
    const struct { weft_light_kind kind; double x; weft_light light; } rows[] = {
        {WEFT_LIGHT_COMMUNICATION, 0, WEFT_LIGHT_OK},      {WEFT_LIGHT_COMMUNICATION, 0.15, WEFT_LIGHT_OK},
        {WEFT_LIGHT_COMMUNICATION, 0.151, WEFT_LIGHT_LOOK}, {WEFT_LIGHT_COMMUNICATION, 0.40, WEFT_LIGHT_LOOK},
        {WEFT_LIGHT_COMMUNICATION, 0.401, WEFT_LIGHT_BAD}, {WEFT_LIGHT_UTILISATION, 1, WEFT_LIGHT_OK},
        {WEFT_LIGHT_UTILISATION, 0.85, WEFT_LIGHT_OK},     {WEFT_LIGHT_UTILISATION, 0.849, WEFT_LIGHT_LOOK},
        {WEFT_LIGHT_UTILISATION, 0.60, WEFT_LIGHT_LOOK},   {WEFT_LIGHT_UTILISATION, 0.599, WEFT_LIGHT_BAD},
        {WEFT_LIGHT_MEMORY, 0.10, WEFT_LIGHT_OK},          {WEFT_LIGHT_MEMORY, 0.101, WEFT_LIGHT_LOOK},
        {WEFT_LIGHT_MEMORY, 9, WEFT_LIGHT_LOOK},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (weft_light_of(rows[i].kind, rows[i].x) != rows[i].light)
            fail_msg("%s %g is %s", weft_light_name(rows[i].kind), rows[i].x,
                     weft_light_word(weft_light_of(rows[i].kind, rows[i].x)));
    for (int k = 0; k < WEFT_LIGHTS; k++)
        assert_int_equal(weft_light_of((weft_light_kind)k, NAN), WEFT_LIGHT_BAD);
    assert_string_equal(weft_light_word(WEFT_LIGHT_LOOK), "look");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lights_stand_at_their_limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
