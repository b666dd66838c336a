# Kernels for NVIDIA GPUs, of operations and of the optimizer, in a library that is opened only on a machine with a GPU
# (base/shared_library.h). Left out where the CUDA compiler or libtorch_cuda.so is not found.
if(NOT TRIREME_BUILD_CUDA)
  message(STATUS "accelerator cuda is left out: TRIREME_CUDA is ${TRIREME_CUDA}")
  return()
endif()
include(CheckLanguage)
find_program(TRIREME_NVCC nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda /usr/local/cuda-13.0 PATH_SUFFIXES bin)
if(NOT TRIREME_NVCC OR NOT EXISTS ${TRIREME_LIBTORCH}/lib/libtorch_cuda.so)
  message(STATUS "accelerator cuda is left out: no nvcc or libtorch_cuda.so")
  return()
endif()
if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${TRIREME_NVCC})
endif()
if(TRIREME_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
# Ampere and Hopper in machine code; what is newer compiles the last one's PTX when it starts.
set(TRIREME_CUDA_ARCHITECTURES "80-real;90-real;90-virtual" CACHE STRING "GPUs that trireme_cuda is compiled for")
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES ${TRIREME_CUDA_ARCHITECTURES})
endif()
enable_language(CUDA)
# CMake 3.25 does not know this of nvcc 12 and later.
foreach(kind STANDARD EXTENSION)
  if(NOT CMAKE_CUDA20_${kind}_COMPILE_OPTION)
    set(CMAKE_CUDA20_${kind}_COMPILE_OPTION -std=c++20)
  endif()
endforeach()
set(CMAKE_CUDA_STANDARD 20)
find_package(CUDAToolkit REQUIRED)

set(cuda_kernels
  elementwise/activation_cuda.cu
  attention/kernels_cuda.cu
  loss/cross_entropy_cuda.cu
  elementwise/embedding_cuda.cu
  norm/head_norm_cuda.cu
  norm/norm_cuda.cu
  elementwise/elementwise_cuda.cu
  products/float8_cuda.cu
  ${PROJECT_SOURCE_DIR}/trireme/optim/optimizer_cuda.cu)
add_library(trireme_cuda SHARED
  attention/attention_cuda.cpp
  attention/cudnn_cuda.cpp
  cuda/graph.cpp
  cuda/library.cpp
  cuda/tuned_product.cpp
  products/float8_product_cuda.cpp
  products/products_cuda.cpp
  ${cuda_kernels})
# Kernels use declarations of LibTorch's headers only; what the flags of the tree say to gcc goes to nvcc's host compiler.
target_compile_options(trireme_cuda PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr --extended-lambda -lineinfo>)
target_link_libraries(trireme_cuda PRIVATE trireme_ops CUDA::cudart CUDA::cublas CUDA::cublasLt
  -Wl,--no-as-needed ${TRIREME_LIBTORCH}/lib/libtorch_cuda.so ${TRIREME_LIBTORCH}/lib/libc10_cuda.so
  # what libtorch_cuda itself needs is found when it is loaded, not here
  -Wl,--allow-shlib-undefined)
# cuDNN's attention. Where its C++ interface is missing, LibTorch's flash attention runs instead.
file(GLOB cudnn_wheels ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/include
  ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/cudnn/include)
find_path(TRIREME_CUDNN_FRONTEND cudnn_frontend.h HINTS ${cudnn_wheels})
find_path(TRIREME_CUDNN cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${cudnn_wheels})
if(TRIREME_CUDNN_FRONTEND AND TRIREME_CUDNN)
  target_include_directories(trireme_cuda SYSTEM PRIVATE ${TRIREME_CUDNN_FRONTEND} ${TRIREME_CUDNN})
else()
  message(STATUS "cuDNN's attention is left out: no cudnn_frontend.h or cudnn.h")
endif()
set_target_properties(trireme_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
  CUDA_RUNTIME_LIBRARY Shared)
