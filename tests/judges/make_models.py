# make_models.py FOLDER — small models of awkward sizes as `weft verify` takes them: config, weights, tokens, and in
# float64 by transformers and torch what a case expects (nll per token, every gradient, AdamW steps). Then:
#   WEFT_TEST_MODELS=FOLDER build/tests/test_cli.verify_matrix_long      (with WEFT and WEFT_GOLDEN set)
import json, os, sys, torch
import transformers as tf
from safetensors.torch import save_file

torch.set_num_threads(1)
torch.manual_seed(7)
STEPS, LR, BETAS, EPS, DECAY, CLIP = 6, 1e-3, (0.9, 0.95), 1e-8, 0.1, 1.0


def sizes(V, C, F, L, H, Hkv, T, tied, **more):
    return dict(vocab_size=V, hidden_size=C, intermediate_size=F, num_hidden_layers=L, num_attention_heads=H,
                num_key_value_heads=Hkv, max_position_embeddings=T, tie_word_embeddings=tied, **more)


# name: config, model, its sizes, B, T, documents of every row
MODELS = {
    'llama_odd': (tf.LlamaConfig, tf.LlamaForCausalLM, sizes(131, 48, 50, 3, 6, 3, 128, True), 3, 33,
                  [0, 1, 1, 20, 33]),
    'llama_mqa': (tf.LlamaConfig, tf.LlamaForCausalLM,
                  sizes(97, 40, 64, 4, 5, 1, 256, False, head_dim=16,
                        rope_parameters=dict(rope_type='linear', factor=2.0, rope_theta=5000.0)), 1, 65, None),
    'llama_bias': (tf.LlamaConfig, tf.LlamaForCausalLM,
                   sizes(97, 24, 31, 2, 3, 3, 64, False, attention_bias=True, mlp_bias=True), 2, 31, None),
    'qwen2_window': (tf.Qwen2Config, tf.Qwen2ForCausalLM,
                     sizes(113, 56, 70, 3, 7, 7, 128, False, use_sliding_window=True, sliding_window=8,
                           max_window_layers=1), 2, 45, None),
    'qwen3_tied': (tf.Qwen3Config, tf.Qwen3ForCausalLM, sizes(61, 36, 44, 5, 8, 2, 64, True, head_dim=6), 2, 29, None),
    'mistral_one': (tf.MistralConfig, tf.MistralForCausalLM, sizes(300, 64, 80, 1, 4, 4, 128, False, sliding_window=5),
                    4, 21, None),
    'gpt2_odd': (tf.GPT2Config, tf.GPT2LMHeadModel,
                 dict(vocab_size=77, n_embd=40, n_head=5, n_layer=3, n_positions=50, n_inner=70, resid_pdrop=0.0,
                      embd_pdrop=0.0, attn_pdrop=0.0), 3, 47, [0, 7, 8, 47]),
}


def random_model(config, cls, kw):
    config = config(**kw)
    config._attn_implementation = 'eager'
    model = cls(config).float()
    with torch.no_grad():  # large enough that every path has a gradient well above rounding
        for name, p in model.named_parameters():
            noise = torch.randn_like(p)
            p.copy_(0.15 * noise if p.ndim >= 2 else 0.1 * noise if 'bias' in name else 1 + 0.1 * noise)
    return model


def token_nll(model, tokens, targets, docs):
    B, out = tokens.shape[0], torch.zeros(tokens.shape, dtype=torch.float64)
    for a, b in zip(docs, docs[1:]):
        if a == b:
            continue
        positions = torch.arange(b - a)[None].expand(B, -1)
        logits = model(input_ids=tokens[:, a:b], position_ids=positions, use_cache=False,
                       attention_mask=torch.ones(B, b - a, dtype=torch.long)).logits
        t = targets[:, a:b]
        nll = -torch.log_softmax(logits, -1).gather(-1, t.clamp(min=0)[..., None])[..., 0]
        out[:, a:b] = torch.where(t >= 0, nll, torch.zeros_like(nll))
    return out


def write(folder, config, cls, kw, B, T, cu):
    model = random_model(config, cls, kw)
    model.save_pretrained(folder)
    model = model.double().train()
    tokens, targets = (torch.randint(0, kw['vocab_size'], (B, T)) for _ in range(2))
    targets[torch.rand(B, T) < 0.2] = -100
    optimizer = torch.optim.AdamW([dict(params=[p for p in model.parameters() if p.ndim >= 2], weight_decay=DECAY),
                                   dict(params=[p for p in model.parameters() if p.ndim < 2], weight_decay=0.0)],
                                  lr=LR, betas=BETAS, eps=EPS)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        nll = token_nll(model, tokens, targets, cu or [0, T])
        loss = nll.sum() / (targets >= 0).sum()
        loss.backward()
        norm = torch.sqrt(sum((p.grad ** 2).sum() for p in model.parameters())).item()
        if step == 0:
            case = {'tokens': tokens, 'targets': targets, 'token_nll': nll.detach().float()}
            if cu:
                case['cu_seqlens'] = torch.tensor(cu, dtype=torch.int32)
            for name, p in model.named_parameters():
                case['grad.' + name] = p.grad.float().contiguous().clone()
            save_file(case, os.path.join(folder, 'case.safetensors'))
        losses.append(loss.item())
        norms.append(norm)
        for p in model.parameters():
            p.grad.mul_(min(1.0, CLIP / (norm + 1e-6)))
        optimizer.step()
    adamw = dict(lr=LR, beta1=BETAS[0], beta2=BETAS[1], eps=EPS, weight_decay=DECAY, clip=CLIP)
    with open(os.path.join(folder, 'trajectory.json'), 'w') as f:
        json.dump(dict(adamw=adamw, loss=losses, grad_norm=norms), f)


for name, model in MODELS.items():
    write(os.path.join(sys.argv[1], name), *model)
