# The parsers of models/common.
frt_add_fuzzer(fuzz_safetensors SEEDS safetensors LINK frt_models_common)
frt_add_fuzzer(fuzz_tokenizer SEEDS tokenizer LINK frt_models_common)
