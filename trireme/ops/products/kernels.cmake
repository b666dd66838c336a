# Our own products: one file per instruction set, chosen at run time (products.cpp). Like attention's kernels they include
# no ATen and no precompiled header.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(gemm_kernels products/kernels_avx2.cpp products/kernels_avx512.cpp products/kernels_avx512_bf16.cpp blocks/widen_avx512.cpp)
  # -O3: at -O2 g++ leaves the loops over a tile's registers rolled, so the tile lies in memory and products take three
  # times as long. `trireme bench gemm` shows it as 30 % of the limit.
  set(gemm_flags "$<$<CONFIG:Release>:-O3>;-mavx2;-mfma;-mavx512f;-mavx512bw;-mavx512vl;-ffp-contract=fast;${TRIREME_NO_UNINITIALIZED}")
  set_source_files_properties(products/kernels_avx2.cpp PROPERTIES COMPILE_OPTIONS
    "$<$<CONFIG:Release>:-O3>;-mavx2;-mfma;-mf16c;-ffp-contract=fast;${TRIREME_NO_UNINITIALIZED}")
  set_source_files_properties(products/kernels_avx512.cpp PROPERTIES COMPILE_OPTIONS "${gemm_flags}")
  set_source_files_properties(products/kernels_avx512_bf16.cpp PROPERTIES COMPILE_OPTIONS "${gemm_flags};-mavx512bf16")
  # Without -ffp-contract=fast: a scale is rounded before its offset is added.
  set_source_files_properties(blocks/widen_avx512.cpp PROPERTIES COMPILE_OPTIONS
    "$<$<CONFIG:Release>:-O3>;-mavx2;-mfma;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;${TRIREME_NO_UNINITIALIZED}")
  set_source_files_properties(${gemm_kernels} PROPERTIES SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(trireme_ops PRIVATE ${gemm_kernels})
endif()
