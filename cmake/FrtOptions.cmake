# frt_warnings: warnings as errors, for our code only (link it PRIVATE).
# frt_sanitize: the sanitizers of FRT_SANITIZE and portable linking, for everything we link.
add_library(frt_warnings INTERFACE)
target_compile_options(frt_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wpedantic -Wshadow -Werror>
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor -Woverloaded-virtual>
  # GCC 12 warns of "literal" + std::string at -O3 without reason (its bug 105651, fixed in 13).
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)

add_library(frt_sanitize INTERFACE)
if(FRT_SANITIZE STREQUAL "address")
  # Sources ask for this macro, which GCC defines.
  target_compile_definitions(frt_sanitize INTERFACE $<$<CXX_COMPILER_ID:Clang>:__SANITIZE_ADDRESS__=1>)
  target_compile_options(frt_sanitize INTERFACE
    -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(frt_sanitize INTERFACE -fsanitize=address,undefined)
  # In every program: what the run-time library assumes unless ASAN_OPTIONS says otherwise.
  add_library(frt_sanitizer_options OBJECT ${CMAKE_CURRENT_LIST_DIR}/sanitizer_options.c)
  target_sources(frt_sanitize INTERFACE
    $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:$<TARGET_OBJECTS:frt_sanitizer_options>>)
elseif(FRT_SANITIZE STREQUAL "thread")
  target_compile_options(frt_sanitize INTERFACE -fsanitize=thread -fno-omit-frame-pointer)
  target_link_options(frt_sanitize INTERFACE -fsanitize=thread)
elseif(FRT_SANITIZE)
  message(FATAL_ERROR "FRT_SANITIZE is '${FRT_SANITIZE}': use address, thread or nothing")
endif()
