# Writes frt_build_info.h; run at each build, touches the file only when something changed.
#   cmake -DSOURCE=... -DOUTPUT=... -DBUILD_TYPE=... -DCOMPILER=... -P build_info.cmake
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty=+ --abbrev=10
  OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(revision unknown)
endif()
string(TOLOWER "${BUILD_TYPE}" build_type)
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT
"#pragma once
#define FRT_SOURCE_REVISION \"${revision}\"
#define FRT_BUILD_TYPE \"${build_type}\"
#define FRT_COMPILER \"${COMPILER}\"
")
