# Sets CUDA up once for the whole project: compiler, architectures, language standard, runtime library.
find_program(CMAKE_CUDA_COMPILER NAMES $ENV{CUDACXX} nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda
             PATH_SUFFIXES bin)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "MOELANE_CUDA needs nvcc, which CMake does not find; CUDA_PATH can name its toolkit, and "
                      "scripts/cuda-toolkit fetches one")
endif()

# Code for the card that is here; where there is none, for every generation that moelane is tuned for, as far as
# this nvcc knows it.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
  execute_process(COMMAND nvidia-smi -L RESULT_VARIABLE no_card OUTPUT_QUIET ERROR_QUIET TIMEOUT 30)
  if(no_card STREQUAL "0")
    set(CMAKE_CUDA_ARCHITECTURES native)
  else()
    execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known)
    foreach(architecture 80 90 100)
      if(known MATCHES "compute_${architecture}\n")
        list(APPEND CMAKE_CUDA_ARCHITECTURES ${architecture})
      endif()
    endforeach()
  endif()
endif()
enable_language(CUDA)

# CMake 3.25 knows no option of nvcc for C++20.
foreach(kind STANDARD EXTENSION)
  if(NOT CMAKE_CUDA20_${kind}_COMPILE_OPTION)
    set(CMAKE_CUDA20_${kind}_COMPILE_OPTION -std=c++20)
  endif()
endforeach()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)

# The runtime that goes into the library, and where it is installed beside a static one. (FindCUDAToolkit of CMake
# 3.25.1 fails on a toolkit that has no nvToolsExt.)
find_library(MOELANE_CUDART cudart_static HINTS ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES} NO_DEFAULT_PATH REQUIRED)
mark_as_advanced(MOELANE_CUDART)
set(moelane_cudart_dir ${CMAKE_INSTALL_LIBDIR}/moelane)
