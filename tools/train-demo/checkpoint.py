# SPDX-License-Identifier: Apache-2.0
"""The model as a standard checkpoint directory: official tensor names, BF16, official form of config.json.

save_pretrained is not used: it renames keys, and it knows no MTP head.
"""

import json
import os
import shutil

import torch
from safetensors.torch import load_file, save_file

from tokenizer import write_json

TRUNK = "model.language_model."


def official(model):
    """-> {official name: tensor}."""
    out = {}
    for name, tensor in model.trunk.state_dict().items():
        out[TRUNK + name[len("model.") :] if name.startswith("model.") else name] = tensor
    for name, tensor in model.mtp.state_dict().items():
        out["mtp." + name] = tensor
    return {name: tensor.detach().to("cpu", torch.bfloat16).contiguous() for name, tensor in sorted(out.items())}


def config_json(sizes, vocab_size, end):
    """`end` is the id of <|endoftext|>."""
    interval, layers = sizes["full_attention_interval"], sizes["num_hidden_layers"]
    text = {
        **sizes,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_output_gate": True,
        "bos_token_id": end,
        "dtype": "bfloat16",
        "eos_token_id": end,
        "hidden_act": "silu",
        "layer_types": ["full_attention" if (i + 1) % interval == 0 else "linear_attention" for i in range(layers)],
        "mamba_ssm_dtype": "float32",
        "model_type": "qwen3_5_text",
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "output_gate_type": "swish",
        "pad_token_id": None,
        "tie_word_embeddings": False,
        "use_cache": True,
        "vocab_size": vocab_size,
    }
    return {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "dtype": "bfloat16",
        "model_type": "qwen3_5",
        "text_config": dict(sorted(text.items())),
        "tie_word_embeddings": False,
    }


def write(model, sizes, tokenizer, folder, template):
    """Everything but the tokenizer's own files, which are already in `folder`."""
    end, turn = tokenizer.token_to_id("<|endoftext|>"), tokenizer.token_to_id("<|im_end|>")
    path = os.path.join(folder, "model.safetensors")
    save_file(official(model), path + ".part", metadata={"format": "pt"})
    os.chmod(path + ".part", 0o644)
    os.replace(path + ".part", path)  # a stop in between leaves the previous one whole
    write_json(os.path.join(folder, "config.json"), config_json(sizes, model.config.vocab_size, end), indent=2)
    write_json(
        os.path.join(folder, "generation_config.json"),
        {
            "bos_token_id": end,
            "do_sample": True,
            "eos_token_id": [turn, end],
            "pad_token_id": end,
            "temperature": 1.0,
            "top_k": 20,
            "top_p": 0.95,
        },
    )
    shutil.copyfile(template, os.path.join(folder, "chat_template.jinja"))


def read(folder, attention="eager", dtype=torch.float32):
    """-> DemoModel in evaluation mode, from the files alone."""
    from model import DemoModel, text_config

    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        text = json.load(f)["text_config"]
    keep = (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "full_attention_interval",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "rms_norm_eps",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
        "max_position_embeddings",
        "rope_parameters",
    )
    model = DemoModel(text_config({k: text[k] for k in keep}, text["vocab_size"], attention))
    state = {}
    for name, tensor in load_file(os.path.join(folder, "model.safetensors")).items():
        state[
            (
                "trunk.model." + name[len(TRUNK) :]
                if name.startswith(TRUNK)
                else name if name.startswith("mtp.") else "trunk." + name
            )
        ] = tensor
    model.load_state_dict(state)
    return model.to(dtype).eval()
