# cmake --install: the program, headers, one static library per folder, and the package that find_package(Trireme)
# reads. A consumer links Trireme::trireme (everything) or single layers: Trireme::comm.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
get_property(libraries GLOBAL PROPERTY TRIREME_LIBRARIES)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Trireme)

add_library(trireme_everything INTERFACE)
target_link_libraries(trireme_everything INTERFACE ${libraries})
target_compile_features(trireme_everything INTERFACE cxx_std_20)
set_target_properties(trireme_everything PROPERTIES EXPORT_NAME trireme)
foreach(library IN LISTS libraries)
  string(REGEX REPLACE "^trireme_" "" layer ${library})
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${layer})
endforeach()

install(TARGETS ${libraries} trireme_everything EXPORT TriremeTargets)
# The libraries that the program opens when a backend is asked for: it looks for them in ../lib (device_loader.h,
# mpi_loader.h, parquet.h, notice.h), whatever this system calls its folder of libraries.
foreach(backend IN ITEMS trireme_cuda trireme_comm_nccl trireme_comm_mpi trireme_parquet trireme_http)
  if(TARGET ${backend})
    set_target_properties(${backend} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
    install(TARGETS ${backend} LIBRARY DESTINATION lib)
  endif()
endforeach()
install(EXPORT TriremeTargets NAMESPACE Trireme:: DESTINATION ${package_dir})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/trireme TYPE INCLUDE FILES_MATCHING PATTERN "*.h")
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/TriremeConfig.cmake.in ${PROJECT_BINARY_DIR}/TriremeConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TriremeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TriremeConfig.cmake ${PROJECT_BINARY_DIR}/TriremeConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/LibTorchTargets.cmake DESTINATION ${package_dir})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/THIRD_PARTY_NOTICES.md TYPE DOC)
