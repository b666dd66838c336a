# observe_bench: what --profile, loggers and the watch for disturbances cost.
add_executable(observe_bench EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/benchmarks/observe_bench.cpp)
target_link_libraries(observe_bench PRIVATE trireme_train)
trireme_use_pch(observe_bench trireme_pch)
set_target_properties(observe_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
