# The parsers of models/common.
frt_add_fuzzer(fuzz_safetensors SEEDS safetensors LINK frt_models_common)
frt_add_fuzzer(fuzz_tokenizer SEEDS tokenizer LINK frt_models_common)
# Conversation formats.
frt_add_fuzzer(fuzz_chat SEEDS chat LINK frt_qwen36_chat)
target_include_directories(fuzz_chat PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/mutators)
frt_add_fuzzer(fuzz_chat_template SEEDS chat_template LINK frt_lm)
