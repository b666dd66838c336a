# LibTorch for this build: by default the wheel that scripts/setup installed into .venv.
file(GLOB TRIREME_LIBTORCH_DEFAULT ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
include(LibTorchTargets)
set(CMAKE_BUILD_RPATH ${TRIREME_LIBTORCH}/lib)
set(CMAKE_INSTALL_RPATH ${TRIREME_LIBTORCH}/lib)

# One precompiled <ATen/ATen.h> for the whole tree: 1.1 s a file instead of 6. For clang, which reads of a precompiled
# header only what a file uses, the other large headers are in it too (c10d's store, which comm/factory.h needs, among
# them), and files without LibTorch have one of their own (half of their time); g++ instantiates in every file what a
# precompiled header has left open.
set(pch_headers)
set(pch_torch_headers <ATen/ATen.h>)
set(pch_definitions)
if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  set(pch_headers <algorithm> <array> <chrono> <cmath> <condition_variable> <filesystem> <fstream> <functional> <map>
      <memory> <mutex> <optional> <set> <span> <sstream> <string> <thread> <unordered_map> <variant> <vector>
      <fmt/format.h> <nlohmann/json.hpp>)
  list(APPEND pch_torch_headers <torch/csrc/distributed/c10d/Store.hpp>)
  if(TRIREME_TESTS)
    list(APPEND pch_headers <gmock/gmock.h> <gtest/gtest.h>)
    set(pch_definitions GTEST_HAS_PTHREAD=1)  # as GTest::gtest
  endif()
endif()
function(trireme_precompile name)
  file(WRITE ${PROJECT_BINARY_DIR}/${name}.cpp "// Makes the precompiled header.\n")
  add_library(${name} STATIC ${PROJECT_BINARY_DIR}/${name}.cpp)
  target_compile_definitions(${name} PRIVATE ${pch_definitions})
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()
trireme_precompile(trireme_pch ${pch_torch_headers} ${pch_headers})
target_link_libraries(trireme_pch PUBLIC libtorch::cpu)
if(TRIREME_TESTS)  # and one for programs with LibTorch's modules
  trireme_precompile(trireme_modules_pch ${pch_torch_headers} <torch/nn.h> ${pch_headers})
  target_link_libraries(trireme_modules_pch PUBLIC libtorch::cpu)
  set_target_properties(trireme_modules_pch PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
if(pch_headers)
  trireme_precompile(trireme_plain_pch ${pch_headers})
  target_compile_definitions(trireme_plain_pch PRIVATE FMT_SHARED)  # as fmt::fmt
endif()

# LibTorch's headers bring a fmt of their own, which none of its libraries holds compiled. Compiled once, here, it saves
# 7 s in every file that formats.
add_library(trireme_fmt STATIC ${PROJECT_SOURCE_DIR}/cmake/libtorch_fmt.cpp)
target_link_libraries(trireme_fmt PRIVATE libtorch::cpu)
set_property(GLOBAL APPEND PROPERTY TRIREME_LIBRARIES trireme_fmt)
