# SPDX-License-Identifier: Apache-2.0
"""Writes a tiny random Qwen3.6 text model with save_pretrained, and what transformers' generate makes of some prompts.

    python3 tools/train-demo/make_tiny_pretrained.py dense|moe DIR

The key names and the shape of config.json are whatever this version of transformers writes: that is the point. The
weights are BF16; DIR/greedy.json has prompts and their greedy ids, computed in float32 from the written files. Norm
weights, dt_bias and A_log are random too, since their defaults hide mistakes. The prompts are random ids; only those
without a close call on their greedy path are taken.
"""

import json
import math
import os
import sys

import torch
import transformers

COMMON = dict(
    vocab_size=320,
    hidden_size=64,
    num_hidden_layers=5,
    full_attention_interval=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=32,
    linear_value_head_dim=32,
    linear_conv_kernel_dim=4,
    max_position_embeddings=512,
    tie_word_embeddings=False,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
    rope_parameters=dict(
        rope_type="default",
        rope_theta=10000000.0,
        partial_rotary_factor=0.25,
        mrope_section=[2, 1, 1],
        mrope_interleaved=True,
    ),
)
KINDS = {
    "dense": ("Qwen3_5TextConfig", "Qwen3_5ForCausalLM", dict(intermediate_size=96)),
    "moe": (
        "Qwen3_5MoeTextConfig",
        "Qwen3_5MoeForCausalLM",
        dict(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, shared_expert_intermediate_size=48),
    ),
}
PROMPTS, STEPS, MARGIN, ROUTER_GAP = (1, 5, 70, 131), 24, 0.1, 5e-4


def randomise(model, seed):
    random = torch.Generator().manual_seed(seed)
    normal = lambda p, scale, centre=0.0: p.data.copy_(centre + scale * torch.randn(p.shape, generator=random))
    for name, p in model.named_parameters():
        if name.endswith("A_log"):  # memories from one to about a thousand tokens
            p.data.copy_(math.log(0.01) + (math.log(16) - math.log(0.01)) * torch.rand(p.shape, generator=random))
        elif name.endswith("dt_bias"):
            normal(p, 0.2, -2.0)
        elif name.endswith("linear_attn.norm.weight"):
            normal(p, 0.2, 1.0)
        elif p.ndim == 1:
            normal(p, 0.2)
        elif name.endswith("conv1d.weight"):
            normal(p, 0.5)
        elif "embed_tokens" in name:
            normal(p, 1.0)
        else:
            gain = 3.0 if "lm_head" in name else 2.0 if name.endswith("mlp.gate.weight") else 1.0
            normal(p, gain / math.sqrt(p.shape[-1]))


def smallest_gap(values, rank):
    best = values.float().topk(rank + 1, -1).values
    return (best[..., rank - 1] - best[..., rank]).min().item()


def search(model, config, length, random):
    """A random prompt without close calls -> its case, the smallest margin and router gap of its greedy path."""
    gaps = []

    def note(gate, inputs, _):
        gaps.append(smallest_gap(inputs[0].reshape(-1, config.hidden_size) @ gate.weight.T, config.num_experts_per_tok))

    hooks = [module.register_forward_hook(note) for name, module in model.named_modules() if name.endswith("mlp.gate")]
    for _ in range(1000):
        ids = torch.randint(0, config.vocab_size, (1, length), generator=random)
        gaps[:] = [math.inf]
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=STEPS,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
        margin = smallest_gap(torch.stack(out.logits), 1)
        if margin >= MARGIN and min(gaps) >= ROUTER_GAP:
            for hook in hooks:
                hook.remove()
            return {"ids": ids[0].tolist(), "greedy": out.sequences[0, length:].tolist()}, margin, min(gaps)
    sys.exit(f"no prompt of length {length} without a close call")


def main(kind, folder, seed=1):
    config_name, model_name, extra = KINDS[kind]
    config = getattr(transformers, config_name)(**COMMON, **extra)
    model = getattr(transformers, model_name)(config)
    randomise(model, seed)
    model.to(torch.bfloat16).save_pretrained(folder)
    model = (
        getattr(transformers, model_name)
        .from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
        .eval()
    )
    random = torch.Generator().manual_seed(seed)
    found = [search(model, config, length, random) for length in PROMPTS]
    margin, gap = (min(f[i] for f in found) for i in (1, 2))
    with open(os.path.join(folder, "greedy.json"), "w", encoding="utf-8") as f:
        json.dump(
            {
                "transformers": transformers.__version__,
                "torch": torch.__version__.split("+")[0],
                "seed": seed,
                "smallest_margin": round(margin, 4),
                **({"smallest_router_gap": round(gap, 5)} if kind == "moe" else {}),
                "cases": [f[0] for f in found],
            },
            f,
        )
        f.write("\n")
    for name in os.listdir(folder):
        os.chmod(os.path.join(folder, name), 0o644)
    print(
        f"{kind}: margin {margin:.3f}, router gap {gap:.1e}",
        {n: os.path.getsize(os.path.join(folder, n)) for n in sorted(os.listdir(folder))},
    )


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    main(*sys.argv[1:])
