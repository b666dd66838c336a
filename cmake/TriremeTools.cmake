# Compiler, linker and cache settings, and the two functions every CMakeLists.txt of the tree uses.
find_program(TRIREME_CCACHE ccache)
if(TRIREME_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # gcc's precompiled headers are cacheable only with these relaxations; the base folder makes paths relative, so
  # that another build folder or clone finds what this one compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${TRIREME_CCACHE})
endif()
find_program(TRIREME_MOLD mold)
if(TRIREME_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# nvcc has flags of its own (trireme/ops/cuda.cmake).
set(warnings -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers)
set(code -fno-math-errno -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  list(APPEND code -fpch-preprocess)
  set(not_errors restrict array-bounds stringop-overflow stringop-overread maybe-uninitialized)
  # gcc 12 reports these where there is nothing, in std::string and std::vector inlined at -O3 (gcc bugs 105329, 105651).
  list(TRANSFORM not_errors PREPEND -Wno-error=)
  # For files of intrinsics, whose headers begin with a register that holds anything.
  set(TRIREME_NO_UNINITIALIZED -Wno-uninitialized -Wno-maybe-uninitialized)
else()
  # libstdc++'s own stable_sort is what is deprecated; C linkage is for dlsym, by C++ on both sides.
  list(APPEND warnings -Wno-deprecated-declarations -Wno-return-type-c-linkage)
  # ccache takes a header that was compiled again for the same one only where its time is not in it.
  list(APPEND code "SHELL:-Xclang -fno-pch-timestamp")
  set(TRIREME_NO_UNINITIALIZED -Wno-uninitialized)
endif()
if(TRIREME_WERROR)
  list(APPEND warnings -Werror ${not_errors})
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${warnings};${code}>")
if(TRIREME_ASSERTS)
  add_compile_options(-UNDEBUG)
endif()
if(TRIREME_SANITIZE)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TRIREME_SANITIZE};-fno-omit-frame-pointer>")
  add_link_options(-fsanitize=${TRIREME_SANITIZE})
endif()

# trireme_library(<folder> SOURCES a.cpp ... DEPENDS <folder|target> ... [TORCH])
# makes the static library trireme_<folder>. TORCH links LibTorch and uses its precompiled header.
function(trireme_library name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;DEPENDS" ${ARGN})
  set(target trireme_${name})
  add_library(${target} STATIC ${ARG_SOURCES})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
  target_link_libraries(${target} PUBLIC ${ARG_DEPENDS})
  if(ARG_TORCH)
    target_link_libraries(${target} PUBLIC libtorch::cpu PRIVATE trireme_fmt)
    target_precompile_headers(${target} REUSE_FROM trireme_pch)
  elseif(TARGET trireme_plain_pch)
    target_precompile_headers(${target} REUSE_FROM trireme_plain_pch)
  endif()
  # Kernels include themselves once for each instruction set, so they share no unit of a unity build (preset ci).
  set(kernels ${ARG_SOURCES})
  list(FILTER kernels INCLUDE REGEX "_kernels\\.cpp$")
  set_source_files_properties(${kernels} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set_property(GLOBAL APPEND PROPERTY TRIREME_LIBRARIES ${target})
endfunction()

# Lets a program use trireme_pch, or trireme_plain_pch where there is one. They are made with -fPIC and not taken with a
# program's -fPIE.
function(trireme_use_pch program header)
  if(TARGET ${header})
    target_precompile_headers(${program} REUSE_FROM ${header})
    target_compile_options(${program} PRIVATE -fPIC)
  endif()
endfunction()

# trireme_test(<name> SOURCES a_test.cpp ... DEPENDS ... [LABEL pure|dist|slow] [TORCH])
# makes one GoogleTest binary and registers each of its tests with CTest under the label.
function(trireme_test name)
  cmake_parse_arguments(ARG "TORCH" "LABEL;TIMEOUT" "SOURCES;DEPENDS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL pure)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gtest GTest::gmock GTest::gtest_main)
  if(ARG_TORCH)
    trireme_use_pch(${name} trireme_pch)
  else()
    trireme_use_pch(${name} trireme_plain_pch)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
endfunction()

# For a test whose ranks must answer in time: one other runs beside it at most, not two (CMakePresets.json). Such tests
# start first, so that no core is idle beside the last of them.
function(trireme_answers_in_time test)
  set_tests_properties(${test} PROPERTIES PROCESSORS 2 COST 1000)
endfunction()
