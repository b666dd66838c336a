# Compiler, linker and cache settings, and the two functions every CMakeLists.txt of the tree uses.
find_program(TRIREME_CCACHE ccache)
if(TRIREME_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # gcc's precompiled headers are cacheable only with these relaxations. The base folder makes paths relative, so that
  # another clone finds what this one compiled; but clang's precompiled headers hold paths, and what uses them is
  # compiled again there.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${TRIREME_CCACHE})
endif()
find_program(TRIREME_MOLD mold)
if(TRIREME_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# All files of a target that compile as one take up to 2.2 GB (g++, trireme/train). Where memory is short, fewer targets
# compile at once than there are cores.
cmake_host_system_information(RESULT memory_mib QUERY TOTAL_PHYSICAL_MEMORY)
math(EXPR compilers "${memory_mib} / 2200")
if(compilers LESS 1)
  set(compilers 1)
endif()
set_property(GLOBAL PROPERTY JOB_POOLS compile=${compilers})
set(CMAKE_JOB_POOL_COMPILE compile)

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
  # vptr would need the type of ops::cuda::Kernels, which lies in a library that is loaded where there is a GPU; function,
  # the types with which libraries that are loaded by name define their functions (NVML).
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TRIREME_SANITIZE};-fno-sanitize=vptr,function;-fno-omit-frame-pointer;-DTRIREME_SANITIZED>")
  add_link_options(-fsanitize=${TRIREME_SANITIZE})
endif()

# trireme_timeout(<variable> <seconds>): programs with sanitizers take several times as long.
function(trireme_timeout variable seconds)
  if(TRIREME_SANITIZE)
    math(EXPR seconds "5 * ${seconds}")
  endif()
  set(${variable} ${seconds} PARENT_SCOPE)
endfunction()

# trireme_library(<folder> SOURCES a.cpp ... DEPENDS <folder|target> ... [TORCH])
# makes the static library trireme_<folder>. TORCH links LibTorch and uses its precompiled header.
function(trireme_library name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;DEPENDS" ${ARGN})
  set(target trireme_${name})
  add_library(${target} STATIC ${ARG_SOURCES})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
  target_link_libraries(${target} PUBLIC ${ARG_DEPENDS})
  target_compile_features(${target} PUBLIC cxx_std_20)
  if(ARG_TORCH)
    target_link_libraries(${target} PUBLIC libtorch::cpu PRIVATE trireme_fmt)
    target_precompile_headers(${target} REUSE_FROM trireme_pch)
  elseif(TARGET trireme_plain_pch)
    target_precompile_headers(${target} REUSE_FROM trireme_plain_pch)
  endif()
  # Kernels include themselves once for each instruction set, so they share no unit of a unity build.
  set(kernels ${ARG_SOURCES})
  list(FILTER kernels INCLUDE REGEX "_kernels\\.cpp$")
  set_source_files_properties(${kernels} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set_property(GLOBAL APPEND PROPERTY TRIREME_LIBRARIES ${target})
endfunction()

# Lets a program use trireme_pch, trireme_modules_pch, or trireme_plain_pch where there is one. They are made with -fPIC
# and not taken with a program's -fPIE.
function(trireme_use_pch program header)
  if(TARGET ${header})
    target_precompile_headers(${program} REUSE_FROM ${header})
    target_compile_options(${program} PRIVATE -fPIC)
  endif()
endfunction()

# How much of the machine a test takes. CTest hands out slots, three a core (CMakePresets.json: jobs): a test that mostly
# waits takes one, one that computes three, every other two. COST: the longest start first, for no core to be idle
# beside the last of them. What takes four starts before all others, which would leave it no room until the end.
# Measured in whole runs on two cores; a test that tests/CMakeLists.txt does not name takes two slots and few seconds.
function(trireme_test_load name)
  set(slots 2)
  set(seconds 1)
  if(TRIREME_TEST_LOADS MATCHES "(^|;)${name}:([0-9]+):([0-9])(;|$)")
    set(seconds ${CMAKE_MATCH_2})
    set(slots ${CMAKE_MATCH_3})
  endif()
  if(slots GREATER 3)
    math(EXPR seconds "${seconds} + 1000")
  endif()
  set_tests_properties(${name} PROPERTIES COST ${seconds} PROCESSORS ${slots})
  if(name IN_LIST TRIREME_TESTS_ALONE)
    set_property(TEST ${name} APPEND PROPERTY LABELS alone)
  endif()
endfunction()

# Threads of LibTorch and PyTorch wait as the program's own do (launch/identity/openmp_wait.h); by default they spin for
# milliseconds and take the cores from the tests beside them.
function(trireme_test_waits name)
  set_tests_properties(${name} PROPERTIES ENVIRONMENT GOMP_SPINCOUNT=2000)
endfunction()

# trireme_test(<name> SOURCES a_test.cpp ... DEPENDS ... [LABEL pure|dist|slow] [TORCH [MODULES]])
# makes one GoogleTest binary and registers each of its tests with CTest under the label. MODULES: it includes
# torch/nn.h.
function(trireme_test name)
  cmake_parse_arguments(ARG "TORCH;MODULES" "LABEL;TIMEOUT" "SOURCES;DEPENDS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL pure)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 400)
  endif()
  trireme_timeout(ARG_TIMEOUT ${ARG_TIMEOUT})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gtest GTest::gmock GTest::gtest_main)
  if(ARG_MODULES)
    trireme_use_pch(${name} trireme_modules_pch)
  elseif(ARG_TORCH)
    trireme_use_pch(${name} trireme_pch)
  else()
    trireme_use_pch(${name} trireme_plain_pch)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
  if(ARG_TORCH)
    trireme_test_waits(${name})
  endif()
  trireme_test_load(${name})
endfunction()

# trireme_script_test(<name> a.py [PROGRAMS target ...] [ARGUMENTS ...] [LABEL dist|pure|slow] [TIMEOUT seconds])
# registers a script of this folder, which .venv's Python runs with the files of the programs, then the arguments.
function(trireme_script_test name script)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "PROGRAMS;ARGUMENTS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL dist)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  trireme_timeout(ARG_TIMEOUT ${ARG_TIMEOUT})
  list(TRANSFORM ARG_PROGRAMS REPLACE "(.+)" "$<TARGET_FILE:\\1>")
  add_test(NAME ${name} COMMAND ${PROJECT_SOURCE_DIR}/.venv/bin/python -B -W ignore ${CMAKE_CURRENT_SOURCE_DIR}/${script}
    ${ARG_PROGRAMS} ${ARG_ARGUMENTS})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77)
  trireme_test_waits(${name})
  trireme_test_load(${name})
endfunction()
