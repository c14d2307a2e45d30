# What another program builds against: headers, the core as a static library, the C interface as a shared one, and the
# package that find_package(steppe) reads. In a wheel all of it lies inside the Python package.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
if(DEFINED SKBUILD)
  set(STEPPE_INCLUDE steppe/include)
  set(STEPPE_LIB steppe/lib)
else()
  set(STEPPE_INCLUDE ${CMAKE_INSTALL_INCLUDEDIR})
  set(STEPPE_LIB ${CMAKE_INSTALL_LIBDIR})
endif()
set(STEPPE_CMAKE ${STEPPE_LIB}/cmake/steppe)

install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/cpp/include/ DESTINATION ${STEPPE_INCLUDE})
install(TARGETS steppe_core steppe_c EXPORT steppeTargets
        ARCHIVE DESTINATION ${STEPPE_LIB} LIBRARY DESTINATION ${STEPPE_LIB} RUNTIME DESTINATION ${STEPPE_LIB}
        INCLUDES DESTINATION ${STEPPE_INCLUDE})
install(EXPORT steppeTargets NAMESPACE steppe:: DESTINATION ${STEPPE_CMAKE})
configure_package_config_file(cmake/steppeConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/steppeConfig.cmake
                              INSTALL_DESTINATION ${STEPPE_CMAKE})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/steppeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/steppeConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/steppeConfigVersion.cmake
        DESTINATION ${STEPPE_CMAKE})
