# Attention's kernels: one file per instruction set, chosen at run time (run.cpp). They include no ATen and no precompiled
# header, so that no library's inline function is compiled with flags that the processor may not support.
set(attention_kernels attention/kernels_portable.cpp)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND attention_kernels attention/kernels_avx2.cpp attention/kernels_avx512.cpp
    attention/kernels_avx512_bf16.cpp)
  set_source_files_properties(attention/kernels_avx2.cpp PROPERTIES
    COMPILE_OPTIONS "-mavx2;-mfma;-ffp-contract=fast")
  # The two warnings: GCC's own intrinsics start from `__Y = __Y` (GCC bug 105593).
  set(avx512 "-mavx2;-mfma;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-ffp-contract=fast;${TRIREME_NO_UNINITIALIZED}")
  set_source_files_properties(attention/kernels_avx512.cpp PROPERTIES COMPILE_OPTIONS "${avx512}")
  set_source_files_properties(attention/kernels_avx512_bf16.cpp PROPERTIES COMPILE_OPTIONS "${avx512};-mavx512bf16")
endif()
set_source_files_properties(${attention_kernels} PROPERTIES SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
target_sources(trireme_ops PRIVATE ${attention_kernels})

add_executable(attention_bench EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/benchmarks/attention_bench.cpp)
target_link_libraries(attention_bench PRIVATE trireme_ops)
target_compile_options(attention_bench PRIVATE -fPIC)  # as the precompiled header was built
target_precompile_headers(attention_bench REUSE_FROM trireme_pch)
