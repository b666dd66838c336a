# Imported targets libtorch::cpu and libtorch::c10, without TorchConfig.cmake (which demands a CUDA toolkit for a
# CUDA wheel). TRIREME_LIBTORCH, as variable or in the environment, names the folder that holds
# lib/libtorch_cpu.so and include/; otherwise TRIREME_LIBTORCH_DEFAULT is taken.
if(NOT TRIREME_LIBTORCH)
  if(DEFINED ENV{TRIREME_LIBTORCH})
    set(TRIREME_LIBTORCH $ENV{TRIREME_LIBTORCH})
  else()
    set(TRIREME_LIBTORCH ${TRIREME_LIBTORCH_DEFAULT})
  endif()
endif()
set(TRIREME_LIBTORCH "${TRIREME_LIBTORCH}" CACHE PATH "Folder of LibTorch: holds lib/libtorch_cpu.so and include/")
if(NOT EXISTS "${TRIREME_LIBTORCH}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "no LibTorch at '${TRIREME_LIBTORCH}': run 'make setup' in Trireme's source, or set TRIREME_LIBTORCH to the folder that holds lib/libtorch_cpu.so")
endif()

if(NOT TARGET libtorch::cpu)
  add_library(libtorch::c10 SHARED IMPORTED GLOBAL)
  set_target_properties(libtorch::c10 PROPERTIES IMPORTED_LOCATION ${TRIREME_LIBTORCH}/lib/libc10.so
    INTERFACE_INCLUDE_DIRECTORIES "${TRIREME_LIBTORCH}/include;${TRIREME_LIBTORCH}/include/torch/csrc/api/include")
  add_library(libtorch::cpu SHARED IMPORTED GLOBAL)
  set_target_properties(libtorch::cpu PROPERTIES IMPORTED_LOCATION ${TRIREME_LIBTORCH}/lib/libtorch_cpu.so
    INTERFACE_LINK_LIBRARIES libtorch::c10
    INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO;AT_PER_OPERATOR_HEADERS")
endif()
