# TRIREME_CUDA: what is compiled for NVIDIA GPUs, wherever the CUDA toolkit is found.
#   ON        always
#   OFF       never
#   CHANGED   where this machine has a GPU, or where the sources for it are not those of the last build that had them
#             (cmake/cuda_sources.sha256, which scripts/build writes)
set(TRIREME_CUDA ON CACHE STRING "Compile what runs on NVIDIA GPUs: ON, OFF, or CHANGED")
set(TRIREME_BUILD_CUDA ON)
if(TRIREME_CUDA STREQUAL "CHANGED")
  file(GLOB_RECURSE sources LIST_DIRECTORIES OFF RELATIVE ${PROJECT_SOURCE_DIR} trireme/*.cu trireme/*cuda*
    trireme/*/cuda/* tests/*cuda* tests/comm/device_test.cpp)
  set(sums "")
  foreach(source IN LISTS sources)
    file(SHA256 ${PROJECT_SOURCE_DIR}/${source} sum)  # ninja configures again from the build folder
    string(APPEND sums "${source} ${sum}\n")
  endforeach()
  string(SHA256 sum "${sums}")
  file(WRITE ${PROJECT_BINARY_DIR}/cuda_sources.sha256 "${sum}\n")
  file(STRINGS ${PROJECT_SOURCE_DIR}/cmake/cuda_sources.sha256 last)
  if(sum STREQUAL last AND NOT EXISTS /dev/nvidia0)
    set(TRIREME_BUILD_CUDA OFF)
  endif()
elseif(NOT TRIREME_CUDA)
  set(TRIREME_BUILD_CUDA OFF)
endif()
