# Installs BUILD_DIR into a folder of its own, builds examples/embed against that alone, and runs it.
set(folder ${BUILD_DIR}/embed_test)
file(REMOVE_RECURSE ${folder})

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    string(JOIN " " command ${ARGN})
    message(FATAL_ERROR "this command failed with status ${status}: ${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${folder}/installed)
file(COPY ${SOURCE_DIR}/examples/embed/ DESTINATION ${folder}/source)
run(${CMAKE_COMMAND} -S ${folder}/source -B ${folder}/build -G Ninja -DCMAKE_BUILD_TYPE=${BUILD_TYPE} ${LAUNCHER} ${COMPILER}
  -DCMAKE_PREFIX_PATH=${folder}/installed "-DCMAKE_CXX_FLAGS=${FLAGS}")
run(${CMAKE_COMMAND} --build ${folder}/build)
run(${folder}/build/embed)
if(NOT output STREQUAL "2 ranks over threads: every element is 3\n")
  message(FATAL_ERROR "examples/embed printed: ${output}")
endif()
run(${folder}/installed/bin/trireme --version)
file(REMOVE_RECURSE ${folder})
