# SPDX-License-Identifier: Apache-2.0
"""Pi0.5 in torch, batched, any size: SigLIP, Gemma prefix, action expert with adaptive RMS norm.

Parameters are a flat dictionary with the names and shapes of an openpi checkpoint, so saving is
writing the dictionary.
"""
import math

import torch
import torch.nn.functional as F

P = "paligemma_with_expert."
VT = P + "paligemma.model.vision_tower.vision_model."
PJ = P + "paligemma.model.multi_modal_projector.linear"
LM = P + "paligemma.model.language_model."
EX = P + "gemma_expert.model."
EMB = P + "paligemma.lm_head.weight"


def shapes(c):
    s = {VT + "embeddings.patch_embedding.weight": (c["vw"], 3, c["patch"], c["patch"]),
         VT + "embeddings.patch_embedding.bias": (c["vw"],),
         VT + "embeddings.position_embedding.weight": ((c["img"] // c["patch"]) ** 2, c["vw"])}

    def linear(name, out, inner, bias=True):
        s[name + ".weight"] = (out, inner)
        if bias:
            s[name + ".bias"] = (out,)
    for i in range(c["vl"]):
        p = VT + f"encoder.layers.{i}."
        for n in ("q_proj", "k_proj", "v_proj", "out_proj"):
            linear(p + "self_attn." + n, c["vw"], c["vw"])
        linear(p + "mlp.fc1", c["vm"], c["vw"])
        linear(p + "mlp.fc2", c["vw"], c["vm"])
        for n in ("layer_norm1", "layer_norm2"):
            s[p + n + ".weight"] = s[p + n + ".bias"] = (c["vw"],)
    s[VT + "post_layernorm.weight"] = s[VT + "post_layernorm.bias"] = (c["vw"],)
    linear(PJ, c["w"], c["vw"])
    for pre, w, m in ((LM, c["w"], c["m"]), (EX, c["ew"], c["em"])):
        for i in range(c["L"]):
            p = pre + f"layers.{i}."
            linear(p + "self_attn.q_proj", c["nh"] * c["hd"], w, False)
            linear(p + "self_attn.k_proj", c["hd"], w, False)
            linear(p + "self_attn.v_proj", c["hd"], w, False)
            linear(p + "self_attn.o_proj", w, c["nh"] * c["hd"], False)
            linear(p + "mlp.gate_proj", m, w, False)
            linear(p + "mlp.up_proj", m, w, False)
            linear(p + "mlp.down_proj", w, m, False)
            for n in ("input_layernorm", "post_attention_layernorm"):
                if pre is LM:
                    s[p + n + ".weight"] = (w,)
                else:
                    linear(p + n + ".dense", 3 * w, w)
    s[LM + "norm.weight"] = (c["w"],)
    s[EMB] = (c["vocab"], c["w"])
    linear(EX + "norm.dense", 3 * c["ew"], c["ew"])
    linear("action_in_proj", c["ew"], c["ad"])
    linear("action_out_proj", c["ad"], c["ew"])
    linear("time_mlp_in", c["ew"], c["ew"])
    linear("time_mlp_out", c["ew"], c["ew"])
    return s


def unused(c):
    """Weights of an openpi checkpoint that no inference reads."""
    last = LM + f"layers.{c['L'] - 1}."
    return {LM + "norm.weight", last + "self_attn.q_proj.weight", last + "self_attn.o_proj.weight",
            last + "post_attention_layernorm.weight",
            *(last + f"mlp.{n}_proj.weight" for n in ("gate", "up", "down"))}


def random_parameters(c, seed):
    generator = torch.Generator().manual_seed(seed)
    out = {}
    for name, shape in shapes(c).items():
        if len(shape) > 1:
            scale = 0.02 if "dense" in name else 1 / math.sqrt(math.prod(shape[1:]))
            value = torch.randn(shape, generator=generator) * scale
        else:
            ones = "layer_norm" in name or "post_layernorm" in name
            value = torch.full(shape, 1.0 if ones and name.endswith("weight") else 0.0)
        if name.endswith("layernorm.dense.bias"):
            value[2 * c["ew"]:] = 0.5                       # gates start half open
        out[name] = value.requires_grad_()
    return out


def linear(x, W, name):
    return F.linear(x, W[name + ".weight"], W.get(name + ".bias"))


def layer_norm(x, W, name):
    return F.layer_norm(x, x.shape[-1:], W[name + ".weight"], W[name + ".bias"], 1e-6)


def rms(x):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


def rope(x, position):                            # x (B, T, heads, hd), position (B, T)
    half = x.shape[-1] // 2
    rate = 10000.0 ** (-torch.arange(half, dtype=torch.float32, device=x.device) / half)
    angle = position[:, :, None, None] * rate
    a, b = x[..., :half], x[..., half:]
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def vision(c, W, image):                          # (B, 3, img, img) in [-1, 1] -> (B, tokens, w)
    p, n = c["patch"], c["img"] // c["patch"]
    b = image.shape[0]
    x = image.reshape(b, 3, n, p, n, p).permute(0, 2, 4, 1, 3, 5).reshape(b, n * n, 3 * p * p)
    x = x @ W[VT + "embeddings.patch_embedding.weight"].reshape(c["vw"], -1).T
    x = x + W[VT + "embeddings.patch_embedding.bias"] + W[VT + "embeddings.position_embedding.weight"]
    for i in range(c["vl"]):
        q = VT + f"encoder.layers.{i}."
        y = layer_norm(x, W, q + "layer_norm1")
        heads = [linear(y, W, q + "self_attn." + t).reshape(b, n * n, c["vh"], -1).transpose(1, 2)
                 for t in ("q_proj", "k_proj", "v_proj")]
        a = F.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(b, n * n, -1)
        x = x + linear(a, W, q + "self_attn.out_proj")
        y = F.gelu(linear(layer_norm(x, W, q + "layer_norm2"), W, q + "mlp.fc1"), approximate="tanh")
        x = x + linear(y, W, q + "mlp.fc2")
    return linear(layer_norm(x, W, VT + "post_layernorm"), W, PJ)


def attend(q, k, v, mask):                        # q (B, T, heads, hd); k, v (B, S, hd); mask (B, S)
    a = F.scaled_dot_product_attention(q.transpose(1, 2), k[:, None], v[:, None],
                                       attn_mask=mask[:, None, None, :])
    return a.transpose(1, 2).flatten(2)


def feed_forward(y, W, p):
    gate = F.gelu(linear(y, W, p + "mlp.gate_proj"), approximate="tanh")
    return linear(gate * linear(y, W, p + "mlp.up_proj"), W, p + "mlp.down_proj")


def prefix(c, W, image, tokens, valid, seen=None):
    """Keys, values of each layer, the mask (B, S) and the length (B) of the prefix.

    `seen` takes what training looks at on the way: the image's tokens, and what the last layer gets.
    """
    picture = vision(c, W, image)
    x = torch.cat([picture, W[EMB][tokens] * math.sqrt(c["w"])], 1)
    b = x.shape[0]
    mask = torch.cat([torch.ones(b, x.shape[1] - tokens.shape[1], dtype=torch.bool, device=x.device), valid], 1)
    position = (mask.cumsum(1) - 1).float()
    kv = []
    for i in range(c["L"]):
        p = LM + f"layers.{i}."
        y = rms(x) * (1 + W[p + "input_layernorm.weight"])
        k = rope(linear(y, W, p + "self_attn.k_proj")[:, :, None], position)[:, :, 0]
        v = linear(y, W, p + "self_attn.v_proj")
        kv.append((k, v))
        if i + 1 == c["L"]:
            if seen is not None:
                seen.update(picture=picture, last=y)
            break                                 # nobody reads the rest
        q = linear(y, W, p + "self_attn.q_proj").reshape(b, -1, c["nh"], c["hd"])
        x = x + linear(attend(rope(q, position), k, v, mask), W, p + "self_attn.o_proj")
        x = x + feed_forward(rms(x) * (1 + W[p + "post_attention_layernorm.weight"]), W, p)
    return kv, mask, mask.sum(1).float()


def time_condition(c, W, t):                      # (B) -> (B, ew)
    period = 4e-3 * 1000.0 ** torch.linspace(0, 1, c["ew"] // 2, device=t.device)
    angle = t[:, None] * (2 * math.pi / period)
    e = torch.cat([angle.sin(), angle.cos()], -1)
    return F.silu(linear(F.silu(linear(e, W, "time_mlp_in")), W, "time_mlp_out"))


def velocity(c, W, kv, mask, length, x, t):       # x (B, H, ad), t (B) -> (B, H, ad)
    b, h = x.shape[:2]
    condition = time_condition(c, W, t)[:, None]
    position = length[:, None] + torch.arange(h, dtype=torch.float32, device=x.device)
    full = torch.cat([mask, torch.ones(b, h, dtype=torch.bool, device=x.device)], 1)

    def modulated(y, name):
        scale, shift, gate = linear(condition, W, name + ".dense").chunk(3, -1)
        return rms(y) * (1 + scale) + shift, gate
    x = linear(x, W, "action_in_proj")
    for i in range(c["L"]):
        p = EX + f"layers.{i}."
        y, gate = modulated(x, p + "input_layernorm")
        q = rope(linear(y, W, p + "self_attn.q_proj").reshape(b, h, c["nh"], c["hd"]), position)
        k = rope(linear(y, W, p + "self_attn.k_proj")[:, :, None], position)[:, :, 0]
        v = linear(y, W, p + "self_attn.v_proj")
        a = attend(q, torch.cat([kv[i][0], k], 1), torch.cat([kv[i][1], v], 1), full)
        x = x + linear(a, W, p + "self_attn.o_proj") * gate
        y, gate = modulated(x, p + "post_attention_layernorm")
        x = x + feed_forward(y, W, p) * gate
    return linear(modulated(x, EX + "norm")[0], W, "action_out_proj")


def sample(c, W, prefixes, noise, steps, beta=1.0):
    """Actions (B, H, ad); `prefixes` is one prefix, or two for guidance: conditional, without tag."""
    x = noise.clone()
    for k in range(steps):
        t = torch.full((x.shape[0],), 1 - k / steps, device=x.device)
        v = [velocity(c, W, *p, x, t) for p in prefixes]
        x = x - (v[0] if len(v) == 1 else v[1] + beta * (v[0] - v[1])) / steps
    return x
