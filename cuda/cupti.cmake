# Sets CUPTI_INCLUDE_DIR, where there is CUPTI's header, and CUPTI_LIBRARY, which the profiler opens if CUPTI is not among
# the system's libraries when it is needed. Both lie with the toolkit, in a folder of its own in some versions, or where
# Python brought them, in a folder of $REEL_NVIDIA_DIRS.
set(nvidia_dirs ${CUDAToolkit_LIBRARY_ROOT} ${CUDAToolkit_TARGET_DIR} $ENV{REEL_NVIDIA_DIRS})
find_path(CUPTI_INCLUDE_DIR cupti.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${CUDA_INCLUDE_DIR} ${nvidia_dirs} /usr/local/cuda
          PATH_SUFFIXES include extras/CUPTI/include)
find_library(CUPTI_LIBRARY NAMES cupti libcupti.so.${CUDAToolkit_VERSION_MAJOR} NAMES_PER_DIR
             HINTS ${CUDAToolkit_LIBRARY_DIR} ${nvidia_dirs} PATH_SUFFIXES lib64 lib extras/CUPTI/lib64)
mark_as_advanced(CUPTI_INCLUDE_DIR CUPTI_LIBRARY)
unset(nvidia_dirs)
