#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pi0.5 at full size in plain PyTorch, random weights, bf16 or fp8: SigLIP So400m, the prefix of
Gemma 2B, the 300M action expert with adaptive norms, Euler steps. The whole inference is one CUDA
graph; its two parts (observe: images and prompt to keys and values; act: noise to actions) are
timed as graphs of their own, too.

    pi05.py                       eager operators in the graph
    pi05.py --compile default     every layer compiled by torch.compile, then captured
    pi05.py --branches 2          guidance, both branches as one batch, images once
    pi05.py --precision fp8       the products of all layers in e4m3, one static scale per operand

What does not depend on the observation (modulations of the steps) is made before, masked views and
padding are not there at all, the last prefix layer only makes keys and values: the same work as
ours. Heads that share keys and values are rows of one attention.
"""

import argparse
import math
import time

import torch
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

from peer import captured, median, milliseconds, percentile_99, print_header

IMAGE, PATCH, CELLS = 224, 14, 256
VISION, VISION_LAYERS, VISION_HEADS, VISION_MLP = 1152, 27, 16, 4304
WIDTH, MLP, EXPERT, EXPERT_MLP, LAYERS = 2048, 16384, 1024, 4096, 18
HEADS, DIM, ACTION, VOCABULARY = 8, 256, 32, 257152


LARGEST = 448                          # of e4m3
INPUT_SCALE, WEIGHT_SCALE = 16 / LARGEST, 0.02 / LARGEST
SCALES = []                            # the same two on the device


def weight(*shape):
    return torch.empty(*shape, dtype=torch.bfloat16, device="cuda").uniform_(-0.02, 0.02)


def product(x, w, bias=None):
    """linear(), with inputs quantised where the weight is."""
    if w.dtype != torch.float8_e4m3fn:
        return linear(x, w, bias)
    x8 = (x.float() * (1 / INPUT_SCALE)).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
    y = torch._scaled_mm(x8.reshape(-1, x.shape[-1]), w.t(), scale_a=SCALES[0], scale_b=SCALES[1],
                         bias=bias, out_dtype=torch.bfloat16)
    return y.reshape(*x.shape[:-1], w.shape[0])


def scale(width):
    return torch.rand(width, device="cuda") + 0.5


def vision_layer_weights():
    return (torch.ones(VISION, dtype=torch.bfloat16, device="cuda"), weight(VISION),
            weight(3 * VISION, VISION), weight(3 * VISION), weight(VISION, VISION), weight(VISION),
            torch.ones(VISION, dtype=torch.bfloat16, device="cuda"), weight(VISION),
            weight(VISION_MLP, VISION), weight(VISION_MLP), weight(VISION, VISION_MLP),
            weight(VISION))


def gemma_layer_weights(width, mlp):
    return (weight((HEADS + 2) * DIM, width), weight(width, HEADS * DIM), weight(2 * mlp, width),
            weight(width, mlp))


def rms(x):
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def rotate(x, cosine, sine):
    """x (batch, rows, heads, DIM); angles (rows, 1, DIM / 2)."""
    low, high = x.float().chunk(2, -1)
    return torch.cat((low * cosine - high * sine, high * cosine + low * sine), -1).bfloat16()


def attend(q, k, v):
    """q (batch, rows, HEADS, DIM), one head of keys and values (batch, all, DIM)."""
    batch, rows = q.shape[:2]
    y = scaled_dot_product_attention(q.reshape(batch, 1, rows * HEADS, DIM), k.unsqueeze(1),
                                     v.unsqueeze(1))
    return y.reshape(batch, rows, HEADS * DIM)


def split_heads(qkv, cosine, sine):
    q, k, v = qkv.split((HEADS * DIM, DIM, DIM), -1)
    q = rotate(q.unflatten(-1, (HEADS, DIM)), cosine, sine)
    return q, rotate(k.unsqueeze(2), cosine, sine).squeeze(2), v


def feed_forward(y, gate_up, down):
    gate, up = product(y, gate_up).chunk(2, -1)
    return product(gelu(gate, approximate="tanh") * up, down)


def vision_layer(x, n1, b1, qkv, qkv_bias, out, out_bias, n2, b2, fc1, fc1_bias, fc2, fc2_bias):
    y = product(layer_norm(x, (VISION,), n1, b1, 1e-6), qkv, qkv_bias)
    q, k, v = y.unflatten(-1, (3, VISION_HEADS, VISION // VISION_HEADS)).permute(2, 0, 3, 1, 4)
    y = scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    x = x + product(y, out, out_bias)
    y = gelu(product(layer_norm(x, (VISION,), n2, b2, 1e-6), fc1, fc1_bias), approximate="tanh")
    return x + product(y, fc2, fc2_bias)


def prefix_layer(x, n1, n2, qkv, out, gate_up, down, cosine, sine):
    q, k, v = split_heads(product((rms(x) * n1).bfloat16(), qkv), cosine, sine)
    x = x + product(attend(q, k, v), out)
    x = x + feed_forward((rms(x) * n2).bfloat16(), gate_up, down)
    return x, k, v


def prefix_last(x, n1, qkv, cosine, sine):
    k, v = product((rms(x) * n1).bfloat16(), qkv[HEADS * DIM:]).chunk(2, -1)
    return rotate(k.unsqueeze(2), cosine, sine).squeeze(2), v


def modulated(x, m):
    return (rms(x) * (1 + m[0]) + m[1]).bfloat16()


def expert_layer(x, m1, m2, qkv, out, gate_up, down, context_k, context_v, cosine, sine):
    q, k, v = split_heads(product(modulated(x, m1), qkv), cosine, sine)
    y = attend(q, torch.cat((context_k, k), 1), torch.cat((context_v, v), 1))
    x = (x + product(y, out) * m1[2]).bfloat16()
    return (x + feed_forward(modulated(x, m2), gate_up, down) * m2[2]).bfloat16()


class Pi05:
    def __init__(self, arguments, wrap):
        self.a = arguments
        self.vision_layer, self.prefix_layer, self.prefix_last, self.expert_layer = (
            wrap(f) for f in (vision_layer, prefix_layer, prefix_last, expert_layer))
        quantise = arguments.precision == "fp8"

        def packed(layer):
            """The matrices of a layer as they are multiplied."""
            return tuple((w / WEIGHT_SCALE).to(torch.float8_e4m3fn) if quantise and w.dim() == 2
                         else w for w in layer)
        self.patch, self.patch_bias = weight(VISION, 3, PATCH, PATCH), weight(VISION)
        self.positions = weight(CELLS, VISION)
        self.vision = [packed(vision_layer_weights()) for _ in range(VISION_LAYERS)]
        self.norm = (torch.ones(VISION, dtype=torch.bfloat16, device="cuda"), weight(VISION))
        self.projector, self.projector_bias = weight(WIDTH, VISION), weight(WIDTH)
        self.embedding = weight(VOCABULARY, WIDTH)
        self.prefix = [packed(gemma_layer_weights(WIDTH, MLP)) for _ in range(LAYERS)]
        self.prefix_norms = [(scale(WIDTH), scale(WIDTH)) for _ in range(LAYERS)]
        self.expert = [packed(gemma_layer_weights(EXPERT, EXPERT_MLP)) for _ in range(LAYERS)]
        self.modulations = 0.1 * torch.randn(arguments.steps, 2 * LAYERS + 1, 3, EXPERT,
                                             device="cuda")
        self.action_in, self.in_bias = weight(EXPERT, ACTION), weight(EXPERT)
        self.action_out, self.out_bias = weight(ACTION, EXPERT), weight(ACTION)
        rows = arguments.views * CELLS + arguments.tokens
        frequencies = 10000 ** (-torch.arange(DIM // 2, device="cuda") / (DIM // 2))
        angles = torch.arange(rows + arguments.horizon, device="cuda")[:, None] * frequencies
        cosine, sine = angles.cos().unsqueeze(1), angles.sin().unsqueeze(1)
        self.prefix_angles = cosine[:rows], sine[:rows]
        self.expert_angles = cosine[rows:], sine[rows:]
        self.images = torch.rand(arguments.views, 3, IMAGE, IMAGE, device="cuda").bfloat16()
        self.tokens = torch.randint(0, VOCABULARY, (arguments.branches, arguments.tokens),
                                    device="cuda")
        self.noise = torch.randn(1, arguments.horizon, ACTION, device="cuda")
        self.context = None
        self.actions = None

    def observe(self):
        x = torch.nn.functional.conv2d(self.images, self.patch, self.patch_bias, stride=PATCH)
        x = x.flatten(2).transpose(1, 2) + self.positions
        for layer in self.vision:
            x = self.vision_layer(x, *layer)
        x = linear(layer_norm(x, (VISION,), *self.norm, 1e-6), self.projector, self.projector_bias)
        text = self.embedding[self.tokens] * math.sqrt(WIDTH)
        x = torch.cat((x.reshape(1, -1, WIDTH).expand(self.a.branches, -1, -1), text), 1)
        self.context = []
        for layer, (n1, n2) in zip(self.prefix[:-1], self.prefix_norms[:-1]):
            x, k, v = self.prefix_layer(x, n1, n2, *layer, *self.prefix_angles)
            self.context.append((k, v))
        self.context.append(self.prefix_last(x, self.prefix_norms[-1][0], self.prefix[-1][0],
                                             *self.prefix_angles))

    def act(self):
        actions = self.noise
        for step in range(self.a.steps):
            m = self.modulations[step]
            x = linear(actions.bfloat16(), self.action_in, self.in_bias)
            x = x.expand(self.a.branches, -1, -1)
            for i, layer in enumerate(self.expert):
                x = self.expert_layer(x, m[2 * i], m[2 * i + 1], *layer, *self.context[i],
                                      *self.expert_angles)
            v = linear(modulated(x, m[-1]), self.action_out, self.out_bias).float()
            guided = v[-1:] + 1.5 * (v[:1] - v[-1:]) if self.a.branches > 1 else v
            actions = actions - guided / self.a.steps
        self.actions = actions

    def infer(self):
        self.observe()
        self.act()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--views", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=30)
    parser.add_argument("--horizon", type=int, default=50)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--branches", type=int, default=1, help="branches of guidance")
    parser.add_argument("--precision", default="bf16", choices=("bf16", "fp8"))
    parser.add_argument("--compile", default="none",
                        choices=("none", "default", "max-autotune-no-cudagraphs"))
    parser.add_argument("--runs", type=int, default=30)
    arguments = parser.parse_args()
    print_header(arguments)

    def wrap(function):
        if arguments.compile == "none":
            return function
        return torch.compile(function, mode=arguments.compile, dynamic=False)

    SCALES.extend(torch.tensor(scale, device="cuda") for scale in (INPUT_SCALE, WEIGHT_SCALE))
    with torch.no_grad():
        model = Pi05(arguments, wrap)
        start = time.perf_counter()
        model.infer()
        torch.cuda.synchronize()
        print(f"first inference, compiling included: {time.perf_counter() - start:.1f} s")
        for name, work in (("infer", model.infer), ("observe", model.observe), ("act", model.act)):
            samples = milliseconds(captured(work), arguments.runs, 1)
            print(f"{name}: median {median(samples):.2f} ms, p99 {percentile_99(samples):.2f} ms")
    assert torch.isfinite(model.actions).all()


if __name__ == "__main__":
    main()
