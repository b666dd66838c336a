# Imported targets for LibTorch, without TorchConfig.cmake (which demands a CUDA toolkit for a CUDA wheel).
# TRIREME_LIBTORCH names the folder that holds lib/libtorch_cpu.so and include/; by default it is the
# wheel that scripts/setup installed into .venv.
if(NOT TRIREME_LIBTORCH)
  if(DEFINED ENV{TRIREME_LIBTORCH})
    set(TRIREME_LIBTORCH $ENV{TRIREME_LIBTORCH})
  else()
    file(GLOB TRIREME_LIBTORCH ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
  endif()
endif()
set(TRIREME_LIBTORCH "${TRIREME_LIBTORCH}" CACHE PATH "Folder of LibTorch: holds lib/libtorch_cpu.so and include/")
if(NOT EXISTS "${TRIREME_LIBTORCH}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "no LibTorch at '${TRIREME_LIBTORCH}': run 'make setup', or set TRIREME_LIBTORCH to the folder that holds lib/libtorch_cpu.so")
endif()

add_library(libtorch::c10 SHARED IMPORTED GLOBAL)
set_target_properties(libtorch::c10 PROPERTIES IMPORTED_LOCATION ${TRIREME_LIBTORCH}/lib/libc10.so
  INTERFACE_INCLUDE_DIRECTORIES "${TRIREME_LIBTORCH}/include;${TRIREME_LIBTORCH}/include/torch/csrc/api/include")
add_library(libtorch::cpu SHARED IMPORTED GLOBAL)
set_target_properties(libtorch::cpu PROPERTIES IMPORTED_LOCATION ${TRIREME_LIBTORCH}/lib/libtorch_cpu.so
  INTERFACE_LINK_LIBRARIES libtorch::c10
  INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO;AT_PER_OPERATOR_HEADERS")
set(CMAKE_BUILD_RPATH ${TRIREME_LIBTORCH}/lib)
set(CMAKE_INSTALL_RPATH ${TRIREME_LIBTORCH}/lib)

# One precompiled <ATen/ATen.h> for the whole tree: 1.1 s a file instead of 6.
file(WRITE ${PROJECT_BINARY_DIR}/trireme_pch.cpp "#include <ATen/ATen.h>\n")
add_library(trireme_pch STATIC ${PROJECT_BINARY_DIR}/trireme_pch.cpp)
target_link_libraries(trireme_pch PUBLIC libtorch::cpu)
target_precompile_headers(trireme_pch PRIVATE <ATen/ATen.h>)
