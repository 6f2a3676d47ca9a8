# Unity builds, of the presets asan and tsan: a dozen sources of a library are compiled as one, because half
# of the processor time goes into headers that all of them include. The release build compiles every source
# alone and so finds an include that is missing.
#
# The sources of one unit share their anonymous namespaces. frt_compile_alone(<target> <sources...>) names those
# whose helpers have the name of another's. Sources with compile options of their own (kernels, tests) are
# compiled alone anyway.
function(frt_compile_alone target)
  get_target_property(folder ${target} SOURCE_DIR)
  list(TRANSFORM ARGN PREPEND ${folder}/)
  set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

frt_compile_alone(frt_core_state src/capsule/manifest.cpp)
frt_compile_alone(frt_core_loader src/plugin/choose.cpp)
frt_compile_alone(frt_host_bench lm_bench.cpp state_check.cpp)
frt_compile_alone(frt_host_http gate.cpp)
frt_compile_alone(frt_host_lm capsules/use.cpp engine/thread.cpp grammar/source.cpp run_record.cpp)
frt_compile_alone(frt_host_robot service/wire/observation.cpp)
frt_compile_alone(frt_host_runtime lm_settings.cpp)
frt_compile_alone(frt_lm src/jinja/methods.cpp)
frt_compile_alone(frt_models_common src/linear_weight.cpp src/safetensors_file.cpp src/split_regex.cpp
  src/tokenizer_file.cpp)
# Whose sources (commands, operators, dialects of an API) name their helpers alike, or that are small.
set_target_properties(frt_host_cli frt_cpu_objects frt_host_api frt_host_examples make-checkpoint
  PROPERTIES UNITY_BUILD OFF)

# In a unit GCC takes a source for a header whose types others see.
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(frt_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()
