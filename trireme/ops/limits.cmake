# The limits' loops: one file per instruction set, chosen at run time (limits.cpp), as attention's kernels.
set(limits_kernels limits_kernel_portable.cpp)
set_source_files_properties(limits_kernel_portable.cpp PROPERTIES COMPILE_OPTIONS "-ffp-contract=fast")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND limits_kernels limits_kernel_avx2.cpp limits_kernel_avx512.cpp limits_kernel_amx.cpp)
  set_source_files_properties(limits_kernel_avx2.cpp PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma")
  # The two warnings: see attention.cmake.
  set_source_files_properties(limits_kernel_avx512.cpp PROPERTIES COMPILE_OPTIONS
    "-mavx2;-mfma;-mavx512f;-mavx512bf16;${TRIREME_NO_UNINITIALIZED}")
  set_source_files_properties(limits_kernel_amx.cpp PROPERTIES COMPILE_OPTIONS "-mamx-tile;-mamx-bf16")
endif()
set_source_files_properties(${limits_kernels} PROPERTIES SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
target_sources(trireme_ops PRIVATE limits.cpp ${limits_kernels})
