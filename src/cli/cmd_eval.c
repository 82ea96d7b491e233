/* cmd_eval.c — `weft eval`: the loss of a model on held-out text, cut over ranks as in training. */
#include "cli/cli.h"

#include <math.h>
#include <stdio.h>

static weft_status eval_body(weft_cli *cli, weft_world *world)
{
    weft_trainer *t = NULL;
    double loss = 0;
    WEFT_TRY(weft_evaluator_create(&t, world, &cli->run));
    int64_t sequences = weft_min_i64(cli->options.eval_sequences, weft_trainer_windows(t, true));
    weft_status st = weft_trainer_eval(t, cli->options.eval_sequences, &loss);
    if (st >= 0 && weft_is_root(world))
        weft_say("loss %.6f nats per token, perplexity %.3f, over %lld held-out sequences of %lld tokens\n", loss,
                 exp(loss), (long long)sequences, (long long)cli->options.seq_length);
    weft_trainer_destroy(t);
    return st;
}

static weft_status eval_check(weft_cli *cli)
{
    weft_model_config config;
    if (!cli->options.data_path)
        return weft_fail(WEFT_ERR_REFUSED, "no data: give --data FILE (a text file or a token file)");
    WEFT_TRY(weft_need_file(cli->options.data_path, "data"));
    if (!cli->options.eval_sequences)
        return weft_fail(WEFT_ERR_REFUSED, "--eval-sequences 0 leaves nothing to evaluate; give 1 or more");
    cli->options.model_dir = cli->positional[0];
    return weft_run_model_config(&cli->run, &config);
}

const weft_command weft_cmd_eval = {"eval",
                                    "eval MODEL_DIR --data FILE [--seq-length N] [--cp N] [--dp N] [options]",
                                    "the loss of a model on held-out text",
                                    WEFT_CMD_EVAL,
                                    1,
                                    1,
                                    false,
                                    true,
                                    eval_check,
                                    eval_body};
