# SPDX-License-Identifier: Apache-2.0
"""The demo model: Qwen3_5ForCausalLM of transformers, and the MTP draft head that transformers does not have.

The head follows the real checkpoints: the embedding of the next token comes first, then the trunk's hidden state
after its final norm, each normed; one linear layer; one decoder layer with full attention; a norm; the trunk's lm_head.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig

SIZES = dict(
    hidden_size=192,
    intermediate_size=448,
    num_hidden_layers=8,
    full_attention_interval=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    rms_norm_eps=1e-6,
    linear_num_key_heads=3,
    linear_num_value_heads=6,
    linear_key_head_dim=64,
    linear_value_head_dim=64,
    linear_conv_kernel_dim=4,
    max_position_embeddings=4096,
    # 64 * 0.25 = 16 rotated dimensions, 8 frequencies, split 3 + 3 + 2 over time, height and width
    rope_parameters=dict(
        rope_type="default",
        rope_theta=10000000.0,
        partial_rotary_factor=0.25,
        mrope_section=[3, 3, 2],
        mrope_interleaved=True,
    ),
)


def text_config(sizes, vocab_size, attention="sdpa"):
    config = Qwen3_5TextConfig(**sizes, vocab_size=vocab_size, tie_word_embeddings=False)
    config._attn_implementation = attention
    return config


class DraftHead(nn.Module):
    """Parameter names are those of the checkpoint without the prefix `mtp.`."""

    def __init__(self, config):
        super().__init__()
        size = config.hidden_size
        self.fc = nn.Linear(2 * size, size, bias=False)
        self.pre_fc_norm_embedding = qwen.Qwen3_5RMSNorm(size, eps=config.rms_norm_eps)
        self.pre_fc_norm_hidden = qwen.Qwen3_5RMSNorm(size, eps=config.rms_norm_eps)
        full = config.layer_types.index("full_attention")  # cache slot of the layer; also selects its kind
        self.layers = nn.ModuleList([qwen.Qwen3_5DecoderLayer(config, full)])
        self.norm = qwen.Qwen3_5RMSNorm(size, eps=config.rms_norm_eps)

    def forward(self, embedded, hidden, position_embeddings, mask=None, cache=None):
        """embedded, hidden [B, T, H] -> the head's own normed output [B, T, H]."""
        x = self.fc(torch.cat([self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)], -1))
        x = self.layers[0](x, position_embeddings=position_embeddings, attention_mask=mask, past_key_values=cache)
        return self.norm(x)


class DemoModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.trunk = qwen.Qwen3_5ForCausalLM(config)
        self.mtp = DraftHead(config)

    def initialise(self):
        """DeltaNet heads with memories from a few to about a thousand tokens; small residual outputs."""
        deep = 1 / math.sqrt(2 * self.config.num_hidden_layers)
        for name, p in self.named_parameters():
            if name.endswith("A_log"):
                p.data.uniform_(1, 16).log_()
            elif name.endswith("dt_bias"):
                dt = torch.exp(torch.empty_like(p).uniform_(math.log(0.001), math.log(0.1)))
                p.data.copy_(dt + torch.log(-torch.expm1(-dt)))  # softplus(dt_bias) = dt
            elif name.endswith("conv1d.weight"):
                p.data.uniform_(-0.5, 0.5)
            elif p.ndim == 2 and "embed" in name:
                p.data.normal_(0, 0.5)
            elif p.ndim == 2:
                p.data.normal_(0, 1 / math.sqrt(p.shape[1]))
                if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
                    p.data.mul_(deep)
        self.trunk.lm_head.weight.data.mul_(0.3)

    def rotary(self, x, first=0):
        """cos and sin of positions first .. first + T - 1 of x [B, T, H]; text only: the three rows are equal."""
        positions = torch.arange(first, first + x.shape[1], device=x.device).view(1, 1, -1).expand(3, 1, -1)
        return self.trunk.model.rotary_emb(x, positions)

    def embed(self, ids):
        return self.trunk.model.embed_tokens(ids)

    def forward(self, ids):
        """ids [B, T] -> three hidden states [B, T, H] for the lm_head.

        They predict the next token, the second next (draft 1), and the second next again from the head's own output
        (draft 2, as when drafts are chained). Row i of a draft has seen token i + 1.
        """
        x = self.embed(ids)
        rotary = self.rotary(x)
        hidden = x
        for layer in self.trunk.model.layers:
            hidden = layer(hidden, position_embeddings=rotary)
        hidden = self.trunk.model.norm(hidden)
        following = F.pad(x[:, 1:], (0, 0, 0, 1))
        first = self.mtp(following, hidden, rotary)
        second = self.mtp(following, F.pad(first[:, :-1], (0, 0, 1, 0)), rotary)
        return hidden, first, second


class UnitLowerInverse(torch.autograd.Function):
    """(I + A)^-1 for strictly lower triangular A [..., 64, 64]: 8 x 8 blocks by their finite series, then doubled."""

    @staticmethod
    def forward(context, a):
        size = a.shape[-1]
        row = torch.arange(size, device=a.device)
        eye = torch.eye(size, device=a.device, dtype=a.dtype)
        inside = (row[:, None] // 8) == (row // 8)
        n = -a * inside
        n2 = n @ n
        inverse = (eye + n) @ (eye + n2) @ (eye + n2 @ n2)
        block = 8
        while block < size:
            inside = ((row[:, None] // (2 * block)) == (row // (2 * block))) & (
                (row[:, None] // block) > (row // block)
            )
            inverse = inverse - inverse @ ((a * inside) @ inverse)
            block *= 2
        context.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(context, grad):
        (inverse,) = context.saved_tensors
        return -(inverse.mT @ grad @ inverse.mT).tril(-1)


def fast_chunk_gated_delta_rule(
    query,
    key,
    value,
    g,
    beta,
    initial_state=None,
    output_final_state=False,
    use_qk_l2norm_in_kernel=True,
    cu_seqlens=None,
    **kwargs
):
    """torch_chunk_gated_delta_rule for training: no state in or out, T a multiple of 64, few large products."""
    assert initial_state is None and not output_final_state and use_qk_l2norm_in_kernel and query.shape[1] % 64 == 0
    kind = query.dtype
    with torch.autocast(query.device.type, enabled=False):
        q, k, v, beta, g = (x.float().transpose(1, 2) for x in (query, key, value, beta, g))
        q, k, v = (x.unflatten(2, (-1, 64)) for x in (q, k, v))  # [B, H, chunks, 64, D]
        beta, g = (x.unflatten(2, (-1, 64)) for x in (beta, g))
        q = q * torch.rsqrt((q * q).sum(-1, keepdim=True) + 1e-6) * q.shape[-1] ** -0.5
        k = k * torch.rsqrt((k * k).sum(-1, keepdim=True) + 1e-6)
        total = g.cumsum(-1)
        upper = torch.ones(64, 64, dtype=torch.bool, device=q.device).triu(1)
        pair = (total[..., :, None] - total[..., None, :]).masked_fill(upper, float("-inf")).exp()
        k_beta = k * beta[..., None]
        inverse = UnitLowerInverse.apply(((k_beta @ k.mT) * pair).tril(-1))
        inner = (q @ k.mT) * pair
        fresh = inverse @ (v * beta[..., None])
        read = inverse @ (k_beta * total.exp()[..., None])
        write = (k * (total[..., -1:] - total).exp()[..., None]).mT
        keep = total[..., -1].exp()[..., None, None]
    states, values = scan(fresh, read, write, keep)
    with torch.autocast(query.device.type, enabled=False):
        out = (q * total.exp()[..., None]) @ states + inner @ values
    return out.flatten(2, 3).transpose(1, 2).to(kind), None


@torch.compiler.disable
def scan(fresh, read, write, keep):
    """The walk over the chunks -> the state before each chunk and the values each chunk writes."""
    batch, device = fresh.shape[:2], fresh.device
    fresh, read, write, keep = (x.flatten(0, 1).unbind(1) for x in (fresh, read, write, keep))
    state = torch.zeros(fresh[0].shape[0], write[0].shape[1], fresh[0].shape[2], device=device)
    states, values = [], []
    with torch.autocast(device.type, enabled=False):
        for u, w, k, decay in zip(fresh, read, write, keep):
            states.append(state)
            values.append(torch.baddbmm(u, w, state, alpha=-1))
            state = torch.baddbmm(state * decay, k, values[-1])
    return torch.stack(states, 1).unflatten(0, batch), torch.stack(values, 1).unflatten(0, batch)


def fast_causal_conv1d(hidden_states, weight, bias=None, activation=None, **kwargs):
    """causal_conv1d_fn as four shifted products: [B, C, T]."""
    width = weight.shape[-1]
    padded = F.pad(hidden_states, (width - 1, 0))
    length = hidden_states.shape[-1]
    return F.silu(sum(padded[..., j : j + length] * weight[:, j, None] for j in range(width))).to(hidden_states.dtype)


class fast_training:
    """Inside this context transformers uses the two functions above; they compute the same."""

    def __enter__(self):
        self.saved = qwen.torch_chunk_gated_delta_rule, qwen.causal_conv1d_fn
        qwen.torch_chunk_gated_delta_rule, qwen.causal_conv1d_fn = fast_chunk_gated_delta_rule, fast_causal_conv1d

    def __exit__(self, *_):
        qwen.torch_chunk_gated_delta_rule, qwen.causal_conv1d_fn = self.saved


def train_fast(model):
    """Compiles the decoder layers (one program for each kind); call inside fast_training."""
    for layer in [*model.trunk.model.layers, *model.mtp.layers]:
        layer.compile(dynamic=False)
