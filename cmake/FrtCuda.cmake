# The CUDA toolkit, if the backend for it is to be built.
#
#   FRT_CUDA        AUTO (default): build plugins/cuda where nvcc is found; ON: it must be found; OFF
#   FRT_CUDA_ARCHS  one plugin each; "a" marks the instructions of exactly that architecture. The
#                   PTX of the base architecture goes into the same plugin, for newer devices.
#   FRT_CUDA_FAST_COMPILE  OFF; ON: code that compiles in a third of the time and runs slowly, with PTX of
#                   the oldest two alone, to see on a machine without a GPU that everything compiles
#
# nvcc is searched for in CMAKE_CUDA_COMPILER, in the toolkit that tools/setup-cuda assembles
# (build/cuda-toolkit), on the PATH and in /usr/local/cuda.
set(FRT_CUDA AUTO CACHE STRING "Build the CUDA backend: AUTO, ON or OFF")
set_property(CACHE FRT_CUDA PROPERTY STRINGS AUTO ON OFF)
set(FRT_CUDA_ARCHS "89;90a;110a;120a;121a" CACHE STRING "Architectures, one plugin each")
option(FRT_CUDA_FAST_COMPILE "Compile device code quickly, without most optimisations" OFF)
foreach(arch IN LISTS FRT_CUDA_ARCHS)
  if(NOT arch MATCHES "^[0-9]+a?$")
    message(FATAL_ERROR "FRT_CUDA_ARCHS has ${arch}: use a number, with \"a\" for the instructions of exactly that "
                        "architecture, such as 89 or 120a; code of a family (f) would lack them without a word")
  endif()
endforeach()

set(FRT_CUDA_FOUND OFF)
if(NOT FRT_CUDA STREQUAL "OFF")
  if(NOT CMAKE_CUDA_COMPILER)
    find_program(FRT_NVCC nvcc
      HINTS ${PROJECT_SOURCE_DIR}/build/cuda-toolkit ENV CUDA_HOME PATH_SUFFIXES bin
      PATHS /usr/local/cuda/bin)
    if(FRT_NVCC)
      set(CMAKE_CUDA_COMPILER ${FRT_NVCC} CACHE FILEPATH "nvcc")
    endif()
  endif()
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_ARCHITECTURES OFF)  # every target states its own
    enable_language(CUDA)
    # The module of CMake 3.25 deprecates CUDA::nvToolsExt for projects that ask for 3.25 and does not ask whether
    # it is there; toolkits of CUDA 13 have none.
    set(minimum ${CMAKE_MINIMUM_REQUIRED_VERSION})
    set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
    find_package(CUDAToolkit 13.0 REQUIRED)
    set(CMAKE_MINIMUM_REQUIRED_VERSION ${minimum})
    set(FRT_CUDA_FOUND ON)
    if(FRT_CUDA_FAST_COMPILE)
      set(CMAKE_CUDA_FLAGS_RELEASE "-O0 -DNDEBUG")  # the host's half of device files
    endif()
  elseif(FRT_CUDA STREQUAL "ON")
    message(FATAL_ERROR "FRT_CUDA is ON and there is no nvcc: run tools/setup-cuda, put a CUDA 13 "
                        "toolkit on the PATH, or set CMAKE_CUDA_COMPILER")
  endif()
endif()
