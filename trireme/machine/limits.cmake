# The limits' loops: one file per instruction set, chosen at run time (limits.cpp), like attention's kernels.
set(limits_kernels kernels_portable.cpp)
set_source_files_properties(kernels_portable.cpp PROPERTIES COMPILE_OPTIONS "-ffp-contract=fast")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND limits_kernels kernels_avx2.cpp kernels_avx512.cpp kernels_amx.cpp)
  set_source_files_properties(kernels_avx2.cpp PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-ffp-contract=fast")
  # The two warnings: see ops/attention/attention.cmake.
  set_source_files_properties(kernels_avx512.cpp PROPERTIES COMPILE_OPTIONS
    "-mavx2;-mfma;-mavx512f;-mavx512bf16;-ffp-contract=fast;${TRIREME_NO_UNINITIALIZED}")
  set_source_files_properties(kernels_amx.cpp PROPERTIES COMPILE_OPTIONS "-mamx-tile;-mamx-bf16")
endif()
set_source_files_properties(${limits_kernels} PROPERTIES SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
target_sources(trireme_machine PRIVATE ${limits_kernels})
