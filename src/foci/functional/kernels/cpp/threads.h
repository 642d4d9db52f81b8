// Threads of OpenMP, where the compiler has it.

#pragma once

#ifdef _OPENMP
#include <omp.h>
#endif

namespace {

int this_thread() {
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

}  // namespace
